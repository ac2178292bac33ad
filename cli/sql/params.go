package sql

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/bourse-dev/bourse"
)

// plainNumber is what a parameter may look like to be taken as a number. No
// exponents: ids such as 148e21 look like them.
var plainNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?$`)

// namedParam is :NAME=VALUE, also with the other signs that SQLite knows.
var namedParam = regexp.MustCompile(`(?s)^[:@$]([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// parseParams reads the values for a statement: by position, or by name.
func parseParams(words []string) (values []any, names map[string]any, err error) {
	for _, word := range words {
		m := namedParam.FindStringSubmatch(word)
		if m == nil {
			values = append(values, paramValue(word))
			continue
		}
		if names == nil {
			names = map[string]any{}
		}
		if _, twice := names[m[1]]; twice {
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "--param :%s is given twice", m[1])
		}
		names[m[1]] = paramValue(m[2])
	}
	if values != nil && names != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "--param: give all values by position or all by name")
	}
	return values, names, nil
}

// paramValue returns what a word means: a plain number, NULL, or text.
// Quotes around it say that it is text in any case.
func paramValue(word string) any {
	if word == "null" {
		return nil
	}
	if plainNumber.MatchString(word) {
		return json.Number(word)
	}
	if strings.HasPrefix(word, `"`) {
		var text string
		if json.Unmarshal([]byte(word), &text) == nil {
			return text
		}
	}
	return word
}
