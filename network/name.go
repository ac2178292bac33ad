package network

import (
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// zone is the domain of private networks. Queries for names in the zone are never forwarded.
const zone = "internal"

// kind is the type of object that a name in the zone refers to.
type kind int

const (
	nameUnknown   kind = iota // does not exist
	nameEmpty                 // is only the parent of names that may exist
	nameApp                   // <app>, global.<app>
	nameRegion                // <region>.<app>
	nameMachine               // <id>.vm.<app>, <name>.vm.<app>
	nameGroup                 // <group>.process.<app>
	nameMetadata              // <value>.<key>.kv._metadata.<app>
	nameNearest               // top<n>.nearest.of.<app>
	nameMachines              // TXT vms.<app>
	nameRegions               // TXT regions.<app>
	nameApps                  // TXT _apps
	nameInstances             // TXT _instances
)

// name is a parsed name in the zone.
type name struct {
	kind  kind
	app   bourse.AppName
	value string // region, machine id or name, group or metadata value
	key   string // metadata key
	count int    // maximum number of machines; only for nameNearest
	all   bool   // whether to include machines that are not running; only for nameMachines and nameRegions
}

// parseName parses the labels before the zone, which may contain any bytes. As usual in DNS, it
// ignores case, but it preserves the case of group names and of metadata keys and values.
func parseName(labels []string) name {
	if len(labels) == 0 {
		return name{kind: nameEmpty}
	}
	last := strings.ToLower(labels[len(labels)-1])
	rest := labels[:len(labels)-1]
	if strings.HasPrefix(last, "_") {
		switch {
		case len(rest) > 0:
		case last == "_apps":
			return name{kind: nameApps}
		case last == "_instances":
			return name{kind: nameInstances}
		}
		return name{}
	}
	app := bourse.AppName(last)
	if app.Validate() != nil {
		return name{}
	}
	n := parseBelow(rest)
	if n.kind != nameUnknown {
		n.app = app
	}
	return n
}

// parseBelow parses the labels before an app's name.
func parseBelow(labels []string) name {
	if len(labels) == 0 {
		return name{kind: nameApp}
	}
	first := labels[0]
	var words []string // all labels except the first
	for _, l := range labels[1:] {
		words = append(words, strings.ToLower(l))
	}
	low := strings.ToLower(first)
	switch strings.Join(words, ".") {
	case "":
		return parseLabel(low)
	case "vms", "regions":
		if low != "all" {
			return name{}
		}
		n := parseLabel(words[0])
		n.all = true
		return n
	case "vm":
		return name{kind: nameMachine, value: low}
	case "process":
		return name{kind: nameGroup, value: first}
	case "nearest.of":
		return nearest(low)
	case "of":
		return nameIf(low == "nearest")
	case "_metadata":
		return nameIf(low == "kv")
	case "kv._metadata":
		return name{kind: nameEmpty}
	}
	if len(words) == 3 && words[1] == "kv" && words[2] == "_metadata" {
		return name{kind: nameMetadata, value: first, key: labels[1]}
	}
	return name{}
}

// parseLabel parses a single label before an app's name.
func parseLabel(label string) name {
	switch label {
	case "global":
		return name{kind: nameApp}
	case "vms":
		return name{kind: nameMachines}
	case "regions":
		return name{kind: nameRegions}
	case "vm", "process", "of", "_metadata":
		return name{kind: nameEmpty}
	}
	return name{kind: nameRegion, value: label}
}

func nearest(label string) name {
	digits, ok := strings.CutPrefix(label, "top")
	count, err := strconv.Atoi(digits)
	if !ok || err != nil || count < 1 || digits[0] == '+' {
		return name{}
	}
	return name{kind: nameNearest, count: count}
}

func nameIf(it bool) name {
	if it {
		return name{kind: nameEmpty}
	}
	return name{}
}
