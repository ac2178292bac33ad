package bourse

// MaxConfigBytes bounds a config as a whole: its JSON without the contents of
// files, which have a bound of their own. Each worker keeps every machine's
// config in memory and on disk, and every server has its metadata.
const MaxConfigBytes = 256 << 10

// maxConfigDepth bounds how deep a config's JSON nests: the view takes no deeper
// values, and the deepest that means anything has 9 levels.
const maxConfigDepth = 32

// validateSize reports CodeInvalid for a config that is too large.
func (c *Config) validateSize() error {
	bare := *c
	bare.Files = nil
	raw, err := bare.MarshalJSON()
	if err != nil {
		return Errorf(CodeInvalid, "invalid config: %w", err)
	}
	if len(raw) > MaxConfigBytes {
		return Errorf(CodeInvalid, "invalid config: %d bytes of JSON without its files, at most %d", len(raw), MaxConfigBytes)
	}
	if depth(raw) > maxConfigDepth {
		return Errorf(CodeInvalid, "invalid config: nested deeper than %d", maxConfigDepth)
	}
	return nil
}

// depth returns how deep a JSON value nests.
func depth(raw []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}
