package place

import (
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// ParseRequirements parses a list of NAME=VALUE. Each name may occur only once.
func ParseRequirements(list []string) (bourse.Requirements, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := bourse.Requirements{}
	for _, s := range list {
		name, r, err := parseRequirement(s)
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s is given more than once", bourse.Quoted(name))
		}
		out[name] = r
	}
	return out, out.Validate()
}

// parseRequirement parses "NAME=VALUE". If VALUE is a whole number, it is an amount of a
// countable resource; otherwise it is the value of a label. A number in quotes is a label's
// value, as in zone="1".
func parseRequirement(s string) (string, bourse.Requirement, error) {
	name, value, err := cli.ParsePair(s)
	if err != nil {
		return "", bourse.Requirement{}, err
	}
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return name, bourse.Requirement{Label: value[1 : len(value)-1]}, nil
	}
	var r bourse.Requirement
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		if n < 1 || n > bourse.MaxAmount {
			return "", r, bourse.Errorf(bourse.CodeInvalid, "requirement %s: %s is not a whole number from 1 to %d", name, bourse.Quoted(value), int64(bourse.MaxAmount))
		}
		return name, bourse.Requirement{Count: n}, nil
	}
	if value == "" {
		return "", r, bourse.Errorf(bourse.CodeInvalid, "requirement %s has no value: use NAME=VALUE", bourse.Quoted(name))
	}
	return name, bourse.Requirement{Label: value}, nil
}
