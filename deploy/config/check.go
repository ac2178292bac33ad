package config

import (
	"fmt"
	"maps"
	"math"
	posix "path"
	"regexp"
	"slices"

	"github.com/bourse-dev/bourse"
)

// groupPattern matches valid names of process groups, which are used in metadata and in DNS names.
var groupPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`)

// checker collects the problems in a configuration.
type checker struct {
	*Config
	problems Problems
}

func (c *checker) bad(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{c.where(path), path, fmt.Sprintf(format, args...)})
}

// valid records err as a problem with the field at path. If err is nil, it does nothing.
func (c *checker) valid(path string, err error) {
	if err != nil {
		message := bourse.MessageOf(err)
		c.bad(path, "%s", withoutMember(message))
	}
}

// check returns the problems that do not depend on the options: invalid values, and invalid combinations of fields.
func (c *Config) check() Problems {
	k := checker{Config: c}
	if c.AppName != "" {
		k.valid("app", bourse.AppName(c.AppName).Validate())
	}
	if c.PrimaryRegion != "" {
		k.valid("primary_region", bourse.Region(c.PrimaryRegion).Validate())
	}
	if c.KillSignal != "" {
		_, err := bourse.ParseSignal(c.KillSignal)
		k.valid("kill_signal", err)
	}
	k.valid("requirements", c.Requirements.Validate())
	k.checkDeploy()
	k.checkProcesses()
	k.checkServices()
	k.checkMounts()
	for i := range c.VM {
		_, err := c.VM[i].guest()
		k.valid(item("vm", i), err)
	}
	k.checkFiles()
	k.checkGroups()
	return k.problems
}

func item(section string, i int) string { return fmt.Sprintf("%s[%d]", section, i) }

func (c *checker) checkDeploy() {
	d := c.Deploy
	if d == nil {
		return
	}
	if m := d.MaxUnavailable; m != nil {
		if err := validMaxUnavailable(*m); err != nil {
			c.bad("deploy.max_unavailable", "%s", bourse.MessageOf(err))
		}
	}
	if d.Command != "" {
		_, err := split(d.Command)
		c.valid("deploy.release_command", err)
	}
	if d.CommandVM != nil {
		_, err := d.CommandVM.guest()
		c.valid("deploy.release_command_vm", err)
	}
}

func validMaxUnavailable(m float64) error {
	if !(m > 0) || m > 1e6 || m >= 1 && m != math.Trunc(m) { // written this way to reject NaN
		return bourse.Errorf(bourse.CodeInvalid, "%v: use a share below 1 such as 0.33, or a whole number of machines", m)
	}
	return nil
}

// checkProcesses checks the names and commands of process groups, and whether the groups named in other sections exist.
func (c *checker) checkProcesses() {
	for _, name := range slices.Sorted(maps.Keys(c.Processes)) {
		if !groupPattern.MatchString(name) {
			c.bad("processes."+name, "invalid group name %s: use letters, digits, - and _", bourse.Quoted(name))
		}
		_, err := split(c.Processes[name])
		c.valid("processes."+name, err)
	}
	for _, s := range c.sections() {
		groups := c.GroupNames()
		for i, name := range s.processes {
			if !slices.Contains(groups, name) {
				hint := ""
				if len(groups) > 1 {
					hint = suggestion(name, groups)
				}
				c.bad(item(s.path+".processes", i), "process group %s does not exist: use %s%s", bourse.Quoted(name), oneOf(groups), hint)
			}
		}
		if s.service && len(s.processes) == 0 && len(c.Processes) > 0 {
			c.bad(s.path, `processes is missing: name the process groups that provide the service, for example processes = ["%s"]`, groups[0])
		}
	}
}

func (c *checker) checkServices() {
	for i := range c.Services {
		s := &c.Services[i]
		if s.InternalPort == nil && len(s.Ports) > 0 && s.Ports[0].Port == nil {
			c.bad(item("services", i)+".ports[0]", "set port, or set start_port and end_port here and internal_port in the service")
		}
		for j := range s.Ports {
			p, path := &s.Ports[j], fmt.Sprintf("services[%d].ports[%d]", i, j)
			switch {
			case p.Port == nil && (p.First == nil || p.Last == nil):
				c.bad(path, "set port, or start_port and end_port")
			case p.Port != nil && (p.First != nil || p.Last != nil):
				c.bad(path, "port cannot be combined with start_port and end_port")
			case p.Port == nil && *p.First > *p.Last:
				c.bad(path, "start_port %d is greater than end_port %d", *p.First, *p.Last)
			}
		}
	}
}

func (c *checker) checkMounts() {
	for i := range c.Mounts {
		m, path := &c.Mounts[i], item("mounts", i)
		switch {
		case m.Source == "":
			c.bad(path, "source is missing: set it to the name of the volumes")
		case m.Destination == "":
			c.bad(path, "destination is missing: set it to the path at which machines mount the volume")
		case !posix.IsAbs(m.Destination) || posix.Clean(m.Destination) != m.Destination || m.Destination == "/":
			c.bad(path+".destination", "%s: use an absolute path below /, without . and ..", bourse.Quoted(m.Destination))
		case (m.ExtendThreshold > 0) != (m.ExtendBy > 0):
			c.bad(path, "auto_extend_size_threshold and auto_extend_size_increment must be set together")
		}
	}
	for i := range c.Metrics {
		if m := &c.Metrics[i]; m.Port == 0 || m.Path == "" {
			c.bad(item("metrics", i), "port and path are required")
		}
	}
	for i := range c.Statics {
		if s := &c.Statics[i]; s.GuestPath == "" || s.URLPrefix == "" {
			c.bad(item("statics", i), "guest_path and url_prefix are required")
		}
	}
}

func (c *checker) checkFiles() {
	for i := range c.Files {
		f, path, n := &c.Files[i], item("files", i), 0
		for _, given := range []string{f.LocalPath, f.RawValue, f.SecretName} {
			if given != "" {
				n++
			}
		}
		if f.GuestPath == "" {
			c.bad(path, "guest_path is missing: set it to the path of the file in the machine")
		} else if n != 1 {
			c.bad(path, "use exactly one of local_path, raw_value and secret_name")
		}
	}
}

func (c *checker) checkGroups() {
	for i := range c.Groups {
		g, path := &c.Groups[i], item("groups", i)
		seen := map[string]bool{}
		for j, r := range g.Regions {
			c.valid(item(path+".regions", j), bourse.Region(r).Validate())
			if seen[r] {
				c.bad(item(path+".regions", j), "region %s is listed twice", r)
			}
			seen[r] = true
		}
		for _, r := range slices.Sorted(maps.Keys(g.Counts)) {
			c.valid(path+".counts."+r, bourse.Region(r).Validate())
		}
		if len(g.Counts) > 0 && (len(g.Regions) > 0 || g.Count != nil) {
			c.bad(path+".counts", "counts cannot be combined with regions or count")
		}
		c.valid(path+".requirements", g.Requirements.Validate())
	}
}
