package config

import (
	"maps"
	"slices"
)

// GroupNames returns the sorted names of the process groups. There is at least one.
func (c *Config) GroupNames() []string {
	if len(c.Processes) == 0 {
		return []string{DefaultGroup}
	}
	return slices.Sorted(maps.Keys(c.Processes))
}

// DefaultGroup returns the process group to which a section applies if it does not name one.
func (c *Config) DefaultGroup() string {
	if groups := c.GroupNames(); !slices.Contains(groups, DefaultGroup) {
		return groups[0]
	}
	return DefaultGroup
}

// section describes a section of a configuration and the process groups to which it applies.
type section struct {
	path      string
	processes []string
	service   bool
}

// sections returns all sections that may name process groups.
func (c *Config) sections() (out []section) {
	if c.HTTPService != nil {
		out = append(out, section{"http_service", c.HTTPService.Processes, true})
	}
	for i := range c.Services {
		out = append(out, section{item("services", i), c.Services[i].Processes, true})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Checks)) {
		out = append(out, section{"checks." + name, c.Checks[name].Processes, false})
	}
	for i := range c.Mounts {
		out = append(out, section{item("mounts", i), c.Mounts[i].Processes, false})
	}
	for i := range c.VM {
		out = append(out, section{item("vm", i), c.VM[i].Processes, false})
	}
	for i := range c.Restart {
		out = append(out, section{item("restart", i), c.Restart[i].Processes, false})
	}
	for i := range c.Files {
		out = append(out, section{item("files", i), c.Files[i].Processes, false})
	}
	for i := range c.Metrics {
		out = append(out, section{item("metrics", i), c.Metrics[i].Processes, false})
	}
	for i := range c.Groups {
		out = append(out, section{item("groups", i), c.Groups[i].Processes, false})
	}
	return out
}

// isFor reports whether a section that names the given processes applies to a group.
func (c *Config) isFor(processes []string, group string) bool {
	if len(processes) == 0 {
		return group == c.DefaultGroup()
	}
	return slices.Contains(processes, group)
}

// nearest returns the index of the section that applies to a group, or -1 if none does. A section that names the group
// takes precedence over one that does not name any groups. another is the index of another section with the same
// precedence, or -1.
func nearest[T any](list []T, group string, processes func(*T) []string) (best, another int) {
	best, another = -1, -1
	for _, named := range []bool{true, false} {
		for i := range list {
			of := processes(&list[i])
			switch {
			case named != (len(of) > 0) || named && !slices.Contains(of, group):
			case best < 0:
				best = i
			default:
				another = i
			}
		}
		if best >= 0 {
			break
		}
	}
	return best, another
}
