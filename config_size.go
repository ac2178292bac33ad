package bourse

import "encoding/json"

// MaxConfigBytes bounds a config as a whole: its JSON without the contents of
// files, which have a bound of their own. Each worker keeps every machine's
// config in memory and on disk, and every server has its metadata.
const MaxConfigBytes = 256 << 10

// validateSize reports CodeInvalid for a config that is too large.
func (c *Config) validateSize() error {
	bare := *c
	bare.Files = nil
	raw, err := json.Marshal(&bare)
	if err != nil {
		return Errorf(CodeInvalid, "invalid config: %w", err)
	}
	if len(raw) > MaxConfigBytes {
		return Errorf(CodeInvalid, "invalid config: %d bytes of JSON without its files, at most %d", len(raw), MaxConfigBytes)
	}
	return nil
}
