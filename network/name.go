package network

import (
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// zone is the domain that belongs to private networks; no name in it is ever
// asked of anyone else.
const zone = "internal"

// kind is what a name in the zone means.
type kind int

const (
	nameUnknown   kind = iota // no such name
	nameEmpty                 // nothing itself, but names below it may be something
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

// name is a name in the zone, read.
type name struct {
	kind  kind
	app   bourse.AppName
	value string // region, machine id or name, group or metadata value
	key   string // of metadata
	count int    // of nearest
	all   bool   // of nameMachines, nameRegions: also what does not run
}

// parseName reads the labels in front of the zone, which may hold any bytes.
// Letters are compared as DNS does, without their case; values of metadata
// are left as they came.
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
	n := below(rest)
	if n.kind != nameUnknown {
		n.app = app
	}
	return n
}

// below reads the labels in front of an app's.
func below(labels []string) name {
	if len(labels) == 0 {
		return name{kind: nameApp}
	}
	first := labels[0]
	var words []string // other than the first
	for _, l := range labels[1:] {
		words = append(words, strings.ToLower(l))
	}
	low := strings.ToLower(first)
	switch strings.Join(words, ".") {
	case "":
		return alone(low)
	case "vms", "regions":
		if low != "all" {
			return name{}
		}
		n := alone(words[0])
		n.all = true
		return n
	case "vm":
		return name{kind: nameMachine, value: low}
	case "process":
		return name{kind: nameGroup, value: first}
	case "nearest.of":
		return nearest(low)
	case "of":
		return emptyIf(low == "nearest")
	case "_metadata":
		return emptyIf(low == "kv")
	case "kv._metadata":
		return name{kind: nameEmpty}
	}
	if len(words) == 3 && words[1] == "kv" && words[2] == "_metadata" {
		return name{kind: nameMetadata, value: first, key: labels[1]}
	}
	return name{}
}

// alone reads a single label in front of an app's.
func alone(label string) name {
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

func emptyIf(it bool) name {
	if it {
		return name{kind: nameEmpty}
	}
	return name{}
}
