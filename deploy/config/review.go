package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// paths records which section of the file defines which part of a machine's config.
type paths struct {
	services  []served
	vm        string
	dedicated string // path of host_dedication_id
	init      string
}

func (m *configMaker) warn(path, message string) {
	w := Warning{m.where(path), path, message}
	if !slices.Contains(m.warnings, w) {
		m.warnings = append(m.warnings, w)
	}
}

// review validates a machine's config as the API would. Problems and warnings refer to the file's fields.
func (m *configMaker) review(c *bourse.Config, from paths) {
	whole := *c
	warnings, err := workload.Review(&whole)
	if err == nil {
		err = whole.Normalize()
	}
	if err != nil && (whole.Image != bourse.ImageHost || len(whole.Init.Command()) > 0) { // checkHost reports a missing command
		m.refused(err, from)
	}
	for _, w := range warnings {
		m.warn(m.fieldOf(from, w.Field), w.Message)
	}
}

// configMember matches the name of a config member at the beginning of an API error.
var configMember = regexp.MustCompile(`^invalid (config[][A-Za-z0-9_.]*(?:"[^"]*")?)(:? )`)

// withoutMember removes the name of the config member from the beginning of an API error.
func withoutMember(message string) string {
	found := configMember.FindStringSubmatch(message)
	switch {
	case found == nil:
		return message
	case found[2] == ": ":
		return message[len(found[0]):]
	}
	return "invalid " + strings.TrimPrefix(found[1], "config.") + " " + message[len(found[0]):]
}

// fieldOf returns the path of the field that defines a member of a machine's config.
func (m *configMaker) fieldOf(from paths, member string) string {
	path := from.path(strings.ReplaceAll(member, "[]", ""))
	based := m.MachineConfig != "" || m.Experimental != nil && m.Experimental.MachineConfig != ""
	switch {
	case path != "" && (!based || m.where(path).Line > 0):
		return path
	case m.MachineConfig != "":
		return "machine_config"
	case based:
		return "experimental.machine_config"
	case member == "config.image" && m.Options.Image == "":
		return "build.image"
	}
	return "" // the member comes from the command line
}

// refused records an API error as a problem. If several groups cause the same error, it is recorded only once.
func (m *configMaker) refused(err error, from paths) {
	path, message := "", bourse.MessageOf(err)
	if found := configMember.FindStringSubmatch(message); found != nil {
		path, message = m.fieldOf(from, strings.ReplaceAll(found[1], `"`, "")), withoutMember(message)
	}
	p := Problem{m.where(path), path, message}
	if !slices.Contains(m.problems, p) {
		m.problems = append(m.problems, p)
	}
}

// renamed replaces the API's names for service members with the names used in configuration files.
var renamed = strings.NewReplacer(".autostop", ".auto_stop_machines", ".autostart", ".auto_start_machines")

// member returns the path of the field that defines a member of a service.
func (s served) member(below string) string {
	if rest, ok := strings.CutPrefix(below, ".checks["); ok {
		number, more, _ := strings.Cut(rest, "]")
		if i, err := strconv.Atoi(number); err == nil && i < len(s.checks) {
			return s.checks[i] + more
		}
	}
	return s.path + renamed.Replace(below)
}

// path returns the path of the field that defines a member of a machine's config, or ""
// if no field corresponds to it.
func (p paths) path(member string) string {
	if rest, ok := strings.CutPrefix(member, "config.services["); ok {
		number, below, _ := strings.Cut(rest, "]")
		if i, err := strconv.Atoi(number); err == nil && i < len(p.services) {
			return p.services[i].member(below)
		}
		return "services"
	}
	if member == "config.guest.host_dedication_id" && p.dedicated != "" {
		return p.dedicated
	}
	if rest, ok := strings.CutPrefix(member, "config.guest"); ok && p.vm != "" {
		return p.vm + rest
	}
	if strings.HasPrefix(member, "config.init") && !strings.HasPrefix(member, "config.init.swap") {
		return p.init
	}
	if strings.HasPrefix(member, "config.checks.") {
		return strings.TrimPrefix(member, "config.")
	}
	for prefix := member; prefix != ""; prefix = prefix[:max(strings.LastIndexByte(prefix, '.'), 0)] {
		for i := range fields {
			if f := &fields[i]; f.Member == prefix && !strings.ContainsAny(f.Path, ".*") {
				return f.Path
			}
		}
	}
	return ""
}
