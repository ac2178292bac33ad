package bourse

import (
	"slices"
	"strings"
)

// Region is a short code such as "gru": 1 to 32 of a-z, 0-9 and "-",
// beginning with a letter. An order for a region is filled there or not at
// all.
type Region string

// wellFormed reports whether r has the shape of a code or an alias.
func (r Region) wellFormed() bool {
	for i := range len(r) {
		if !isLetter(r[i]) && (i == 0 || !isDigit(r[i]) && r[i] != '-') {
			return false
		}
	}
	return r != "" && len(r) <= 32
}

// Validate reports CodeInvalid unless r has the shape of a region code that
// is no alias.
func (r Region) Validate() error {
	if !r.wellFormed() {
		return Errorf(CodeInvalid, "region %s: want a short code such as gru", Quoted(string(r)))
	}
	if isAlias(r) {
		return Errorf(CodeInvalid, "region %s is an alias for several: a worker stands in one", r)
	}
	return nil
}

// RegionAny is the alias for every region of the exchange.
const RegionAny Region = "any"

// aliases stand for the well-known regions of a part of the world. Regions of
// an operator's own naming are reached by their code or by "any".
var aliases = map[Region][]Region{
	"eu":   {"ams", "arn", "cdg", "fra", "lhr", "mad", "otp", "waw"},
	"na":   {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "qro", "sea", "sjc", "yul", "yyz"},
	"us":   {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "sea", "sjc"},
	"usa":  {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "sea", "sjc"},
	"sa":   {"bog", "eze", "gdl", "gig", "gru", "scl"},
	"apac": {"bom", "hkg", "nrt", "sin", "syd"},
}

func isAlias(r Region) bool { return r == RegionAny || aliases[r] != nil }

// maxRegions bounds a region expression before it is resolved.
const maxRegions = 64

// Choice is one entry of a region expression: the regions to try together
// before the next entry is looked at.
type Choice []Region

// ParseRegions reads a region expression, a comma list of codes and aliases
// in order of preference ("lhr,eu" or "any"), against the regions that the
// exchange has now. An alias becomes one choice of all its regions that exist
// and were not named before; an unknown code is CodeInvalid and names what
// there is. The empty expression means "any".
func ParseRegions(expression string, known []Region) ([]Choice, error) {
	if strings.TrimSpace(expression) == "" {
		expression = string(RegionAny)
	}
	words := strings.Split(expression, ",")
	if len(words) > maxRegions {
		return nil, Errorf(CodeInvalid, "region expression has %d entries: at most %d", len(words), maxRegions)
	}
	var out []Choice
	seen := map[Region]bool{}
	for _, word := range words {
		r := Region(strings.ToLower(strings.TrimSpace(word)))
		if !r.wellFormed() {
			return nil, Errorf(CodeInvalid, "region %s: want a short code such as gru, or a list of them", Quoted(word))
		}
		var choice Choice
		for _, region := range expand(r, known) {
			if !seen[region] {
				seen[region] = true
				choice = append(choice, region)
			}
		}
		if len(choice) > 0 {
			out = append(out, choice)
			continue
		}
		if !isAlias(r) && !seen[r] {
			return nil, Errorf(CodeInvalid, "unknown region %s: the exchange has %s", Quoted(string(r)), listRegions(known))
		}
	}
	if len(out) == 0 {
		return nil, Errorf(CodeInvalid, "no region fits %s: the exchange has %s", Quoted(expression), listRegions(known))
	}
	return out, nil
}

func expand(r Region, known []Region) []Region {
	if r == RegionAny {
		return known
	}
	if members := aliases[r]; members != nil {
		return slices.DeleteFunc(slices.Clone(members), func(m Region) bool { return !slices.Contains(known, m) })
	}
	if slices.Contains(known, r) {
		return []Region{r}
	}
	return nil
}

func listRegions(known []Region) string {
	if len(known) == 0 {
		return "none (no worker has been heard of)"
	}
	names := make([]string, len(known))
	for i, r := range known {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
