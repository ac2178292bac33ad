package config

// check looks for what fields together cannot be, whatever the options.
func (c *Config) check() (problems Problems) { return nil }
