"""The heart: router, dispatch, results, appender, loop, driver, journal, events."""
