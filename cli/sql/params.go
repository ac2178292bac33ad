package sql

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/bourse-dev/bourse"
)

// plainNumber matches parameters that are numbers. It excludes exponents, because an id
// such as 148e21 would otherwise be a number.
var plainNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?$`)

// namedParam matches :NAME=VALUE. SQLite's other prefixes, @ and $, are also accepted.
var namedParam = regexp.MustCompile(`(?s)^[:@$]([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// parseParams parses the values of --param, which are either positional or named.
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
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "--param :%s is given more than once", m[1])
		}
		names[m[1]] = paramValue(m[2])
	}
	if values != nil && names != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "--param: use either positional or named values, but not both")
	}
	return values, names, nil
}

// paramValue parses the value of a parameter, which is a plain number, null, or text. A
// JSON string is always text.
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
