package config

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// baseConfig returns the part of the config that is the same for all machines.
func (m *configMaker) baseConfig() bourse.Config {
	c := m.base
	c.Image = m.image
	c.Env = maps.Clone(m.base.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	maps.Copy(c.Env, m.Config.Env)
	if m.primary != "" {
		c.Env["PRIMARY_REGION"] = string(m.primary)
	}
	maps.Copy(c.Env, m.Options.Env)
	if e := m.Experimental; e != nil {
		c.Init.Cmd = orDefault(e.Cmd, c.Init.Cmd)
		c.Init.Entrypoint = orDefault(e.Entrypoint, c.Init.Entrypoint)
		c.Init.Exec = orDefault(e.Exec, c.Init.Exec)
	}
	if m.KillSignal != "" || m.KillTimeout > 0 {
		signal, _ := bourse.ParseSignal(m.KillSignal)
		if m.KillSignal == "" {
			signal = ""
		}
		c.StopConfig = &bourse.StopConfig{Signal: signal, Timeout: m.KillTimeout}
	}
	if m.SwapSizeMB > 0 {
		c = withRest(c, "init", map[string]any{"swap_size_mb": m.SwapSizeMB})
	}
	return c
}

func orDefault(list Words, absent []string) []string {
	if len(list) == 0 {
		return absent
	}
	return list
}

// group returns the desired state of a process group.
func (m *configMaker) group(name string) deploy.Group {
	g := deploy.Group{Name: name, Config: m.baseConfig(), Smoke: !m.NoSmoke}
	c := &g.Config
	from := paths{init: "experimental"}
	if command := m.Processes[name]; command != "" {
		from.init = "processes." + name
		if words, err := split(command); err == nil && len(words) > 0 {
			c.Init.Cmd = words
		}
		if len(c.Init.Exec) > 0 {
			m.warn(from.init, "the command is not used, because experimental.exec overrides it")
		}
	}
	services, sections := m.services(name, c.ImageKind())
	from.services = sections
	if len(services) > 0 {
		c.Services = raw(services)
	}
	if checks := m.topChecks(name); len(checks) > 0 {
		c.Checks = raw(checks)
	}
	m.addStored(c, name)
	m.files(c, name)
	m.requirements(c, name)
	m.size(&g, &from)
	if _, g.Mount = m.mount(name); g.Mount != nil && g.Mount.SizeGB == 0 {
		g.Mount.SizeGB = 1
		if g.Config.Guest != nil && g.Config.Guest.GPUs > 0 {
			g.Mount.SizeGB = 100
		}
	}
	g.Spare = !m.NoSpares && g.Mount == nil
	m.counts(&g)
	m.review(c, from)
	return g
}

// addStored adds the restart policy, and the metrics and statics sections, which are copied unchanged.
func (m *configMaker) addStored(c *bourse.Config, group string) {
	if i := sectionFor(m, "restart", m.Config.Restart, group, func(r *Restart) []string { return r.Processes }); i >= 0 {
		r := m.Config.Restart[i]
		policy := bourse.RestartPolicy(r.Policy)
		if r.Policy == "never" {
			policy = bourse.RestartNo
		}
		c.Restart = &bourse.Restart{Policy: policy, MaxRetries: int(r.Retries)}
	}
	if i := sectionFor(m, "metrics", m.Metrics, group, func(r *Metrics) []string { return r.Processes }); i >= 0 {
		metrics := m.Metrics[i]
		metrics.Processes = nil
		c.Metrics = raw(metrics)
	}
	if len(m.Statics) > 0 && group == m.DefaultGroup() {
		c.Statics = raw(m.Statics)
	}
}

// sectionFor returns the index of the section that applies to a group, or -1 if none does. If several sections apply,
// it returns the first one and adds a problem.
func sectionFor[T any](m *configMaker, name string, list []T, group string, processes func(*T) []string) int {
	found := -1
	for i := range list {
		if !m.isFor(processes(&list[i]), group) {
			continue
		}
		if found >= 0 {
			m.bad(item(name, i), "group %s already has a [[%s]] section: only one is allowed", group, name)
			continue
		}
		found = i
	}
	return found
}

// mount returns the path of a group's mount section and the mount, which is nil if the
// group has none.
func (m *configMaker) mount(group string) (string, *deploy.Mount) {
	var found *Mount
	where := ""
	for i := range m.Mounts {
		switch {
		case !m.isFor(m.Mounts[i].Processes, group):
		case found != nil:
			m.bad(item("mounts", i), "group %s already has a mount: a machine can mount only one volume", group)
		default:
			found, where = &m.Mounts[i], item("mounts", i)
		}
	}
	if found == nil {
		return "", nil
	}
	out := &deploy.Mount{
		Volume: found.Source, Path: found.Destination, SizeGB: int64(found.InitialSize),
		ExtendThresholdPercent: int(found.ExtendThreshold), AddSizeGB: int64(found.ExtendBy), SizeGBLimit: int64(found.ExtendLimit),
		AutoBackup: found.Snapshots,
	}
	if found.SnapshotRetention != nil {
		days := int(*found.SnapshotRetention)
		out.SnapshotRetention = &days
	}
	return where, out
}

func vmProcesses(v *VM) []string { return v.Processes }

// size fills in the size of a group's machines.
func (m *configMaker) size(g *deploy.Group, from *paths) {
	i, another := nearest(m.VM, g.Name, vmProcesses)
	if another >= 0 {
		m.bad(item("vm", another), "another [[vm]] section already applies to group %s", g.Name)
	}
	switch {
	case m.Guest != nil:
		guest := *m.Guest
		g.Config.Guest, g.Config.Size = &guest, ""
	case i >= 0:
		guest, _ := m.VM[i].guest() // errors have already been reported
		g.Config.Guest, g.Config.Size = &guest, ""
	case g.Config.Guest == nil && g.Config.Size == "":
		guest := bourse.Guest{}.WithDefaults()
		g.Config.Guest, g.KeepGuest = &guest, true
	}
	rest := map[string]any{}
	if m.HostDedicationID != "" {
		rest["host_dedication_id"], from.dedicated = m.HostDedicationID, "host_dedication_id"
	}
	if i >= 0 {
		from.vm = item("vm", i)
		if m.VM[i].HostDedicationID != "" {
			from.dedicated = from.vm + ".host_dedication_id"
		}
		maps.Copy(rest, m.VM[i].rest())
	}
	if len(rest) > 0 {
		g.Config = withRest(g.Config, "guest", rest)
	}
}

// requirements fills in a group's requirements for workers.
func (m *configMaker) requirements(c *bourse.Config, group string) {
	out := maps.Clone(m.base.Requirements)
	if out == nil {
		out = bourse.Requirements{}
	}
	maps.Copy(out, m.Requirements)
	if i, _ := nearest(m.Groups, group, groupProcesses); i >= 0 {
		maps.Copy(out, m.Groups[i].Requirements)
	}
	if len(out) > 0 {
		c.Requirements = out
	}
}

func groupProcesses(g *Group) []string { return g.Processes }

// counts fills in the number of machines in each region.
func (m *configMaker) counts(g *deploy.Group) {
	i, another := nearest(m.Groups, g.Name, groupProcesses)
	if another >= 0 {
		m.bad(item("groups", another), "another [[groups]] section already applies to group %s", g.Name)
	}
	if i < 0 {
		return
	}
	in := &m.Groups[i]
	if in.Spare != nil {
		g.Spare = *in.Spare
	}
	for _, r := range slices.Sorted(maps.Keys(in.Counts)) {
		g.Counts = append(g.Counts, deploy.Count{Region: bourse.Region(r), Count: int(in.Counts[r])})
	}
	regions := in.Regions
	if len(regions) == 0 && in.Count != nil {
		if m.primary == "" {
			m.bad(item("groups", i)+".count", "count requires regions, or a primary_region")
		}
		regions = []string{string(m.primary)}
	}
	for _, r := range regions {
		g.Counts = append(g.Counts, deploy.Count{Region: bourse.Region(r), Count: int(valueOr(in.Count, 1))})
	}
}

// files adds to c the files that are defined for a group.
func (m *configMaker) files(c *bourse.Config, group string) {
	for i := range m.Config.Files {
		f := &m.Config.Files[i]
		if !m.isFor(f.Processes, group) {
			continue
		}
		out := bourse.File{GuestPath: f.GuestPath, SecretName: f.SecretName}
		switch {
		case f.LocalPath != "":
			out.RawValue = m.local(item("files", i)+".local_path", f.LocalPath)
		case f.RawValue != "":
			out.RawValue = []byte(f.RawValue)
		}
		c.Files = append(slices.Clip(c.Files), out)
	}
}

// local reads a file in or below the configuration's directory. If that fails, it adds a problem for the given field.
func (m *configMaker) local(field, name string) []byte {
	clean := path.Clean(strings.TrimPrefix(name, "./"))
	if !fs.ValidPath(clean) || m.Options.Files == nil {
		m.bad(field, "%s is outside the directory of the configuration", bourse.Quoted(name))
		return nil
	}
	content, err := fs.ReadFile(m.Options.Files, clean)
	if err != nil {
		m.bad(field, "%v", err)
	}
	if len(content) > MaxBytes {
		m.bad(field, "the file is too large: it has %d bytes, but at most %d are allowed", len(content), MaxBytes)
		return nil
	}
	return content
}

// machineConfig returns the config in machine_config, which the other sections override.
func (m *configMaker) machineConfig() (c bourse.Config) {
	field, written := "machine_config", m.MachineConfig
	if e := m.Experimental; written == "" && e != nil {
		field, written = "experimental.machine_config", e.MachineConfig
	}
	if written == "" {
		return c
	}
	content := []byte(written)
	if !strings.HasPrefix(strings.TrimSpace(written), "{") {
		content = m.local(field, written)
	}
	if len(content) > 0 {
		if err := json.Unmarshal(bytes.TrimSpace(content), &c); err != nil {
			m.bad(field, "invalid machine config: %v", err)
		}
		if len(c.Mounts) > 0 {
			m.bad(field, "mounts are not supported here, because each machine needs its own volume: write [[mounts]]")
			c.Mounts = nil
		}
	}
	return c
}

// withRest adds members to an object in a config's JSON. It is used for members for which bourse.Config has no field.
func withRest(c bourse.Config, object string, members map[string]any) bourse.Config {
	rest := map[string]any{}
	if len(c.Rest) > 0 {
		_ = json.Unmarshal(c.Rest, &rest) // cannot fail, because c.Rest was produced by decoding the config
	}
	below, _ := rest[object].(map[string]any)
	if below == nil {
		below = map[string]any{}
	}
	maps.Copy(below, members)
	rest[object] = below
	c.Rest = raw(rest)
	return c
}
