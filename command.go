package bourse

import (
	"encoding/json"
	"strings"
)

// Command is a command line. JSON reads a list of words, or a string that
// "sh -c" is to run.
type Command []string

// UnmarshalJSON reads a list of words or a string. An empty one is CodeInvalid.
func (c *Command) UnmarshalJSON(b []byte) error {
	var text string
	var words []string
	switch {
	case json.Unmarshal(b, &text) == nil && strings.TrimSpace(text) != "":
		words = []string{"sh", "-c", text}
	case json.Unmarshal(b, &words) != nil || len(words) == 0 || words[0] == "":
		return Errorf(CodeInvalid, "invalid command: use a string for sh -c, or a list of words")
	}
	for _, w := range words {
		if strings.ContainsRune(w, 0) {
			return Errorf(CodeInvalid, "invalid command: it holds a NUL byte")
		}
	}
	*c = words
	return nil
}
