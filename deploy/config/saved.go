package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// FromMachines derives an app's configuration from its machines, in the format of [Config.JSON]. It uses the most
// recently changed machine of each process group. It also returns a one-line description of each setting that the
// configuration omits. Errors: not_found if no machine's config is known.
func FromMachines(app bourse.AppName, machines []machinesapi.Machine) (json.RawMessage, []string, error) {
	s := saver{groups: map[string]*bourse.Config{}, regions: map[string]map[string]int64{}}
	machines = slices.Clone(machines)
	slices.SortStableFunc(machines, func(a, b machinesapi.Machine) int { return cmp.Compare(b.UpdatedAt, a.UpdatedAt) })
	for i := range machines {
		s.add(&machines[i])
	}
	if len(s.groups) == 0 {
		return nil, nil, bourse.Errorf(bourse.CodeNotFound, "app %s has no machine whose config is known", app)
	}
	d := Definition{AppName: string(app), Env: Texts{}}
	names := slices.Sorted(maps.Keys(s.groups))
	s.common(&d, names)
	for _, name := range names {
		s.group(&d, name, s.groups[name], len(names) > 1 || name != DefaultGroup)
	}
	out, err := json.Marshal(&d)
	return out, s.notes, err
}

type saver struct {
	groups  map[string]*bourse.Config
	regions map[string]map[string]int64 // number of machines by group and region
	notes   []string
}

func (s *saver) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(s.notes, n) {
		s.notes = append(s.notes, n)
	}
}

// add records a machine and its config. It ignores temporary machines, such as canaries and machines that run release
// commands.
func (s *saver) add(m *machinesapi.Machine) {
	c := m.Known()
	if c == nil {
		s.note("machine %s, whose config is unknown", m.ID)
		return
	}
	name := deploy.GroupOf(c)
	if strings.HasPrefix(name, "fly_app_") || c.Metadata[deploy.KeyCanary] != "" {
		return
	}
	if m.Config == nil {
		s.note("environment and files of machine %s, whose worker does not answer", m.ID)
	}
	if s.regions[name] == nil {
		s.regions[name] = map[string]int64{}
	}
	s.regions[name][string(m.Region)]++
	if first := s.groups[name]; first == nil {
		s.groups[name] = c
	} else if first.Image != c.Image || !slices.Equal(first.Init.Command(), c.Init.Command()) {
		s.note("differences between the machines of group %s: the one that was changed last is used", name)
	}
}

// common fills in the settings that are the same for all groups.
func (s *saver) common(d *Definition, names []string) {
	first := s.groups[names[0]]
	d.Build = &Build{Image: first.Image}
	maps.Copy(d.Env, first.Env)
	d.PrimaryRegion = first.Env["PRIMARY_REGION"]
	for _, name := range names {
		c := s.groups[name]
		if c.Image != first.Image {
			s.note("image %s of group %s: a configuration contains only one image", c.Image, name)
		}
		for key, value := range d.Env {
			if c.Env[key] != value {
				delete(d.Env, key)
			}
		}
	}
	for _, name := range names {
		for _, key := range slices.Sorted(maps.Keys(s.groups[name].Env)) {
			if _, ok := d.Env[key]; !ok {
				s.note("variable %s of group %s: all groups share one environment", key, name)
			}
		}
	}
	delete(d.Env, "PRIMARY_REGION")
	if signal, timeout := first.Stop(); first.StopConfig != nil {
		d.KillSignal, d.KillTimeout = string(signal), bourse.Duration(timeout)
	}
	if len(first.Init.Entrypoint) > 0 || len(first.Init.Exec) > 0 {
		d.Experimental = &Experimental{Entrypoint: first.Init.Entrypoint, Exec: first.Init.Exec}
	}
}

// group adds a group's sections. The sections name the group if named is set or the group has a command.
func (s *saver) group(d *Definition, name string, c *bourse.Config, named bool) {
	var processes []string
	if named || len(c.Init.Cmd) > 0 {
		if d.Processes == nil {
			d.Processes = map[string]string{}
		}
		d.Processes[name], processes = quoted(c.Init.Cmd), []string{name}
	}
	s.services(d, c, processes)
	s.checks(d, name, c, processes)
	for _, m := range c.Mounts {
		d.Mounts = append(d.Mounts, Mount{
			Source: m.Name, Destination: m.Path, Processes: processes, InitialSize: GB(m.SizeGB),
			ExtendThreshold: int64(m.ExtendThresholdPercent), ExtendBy: GB(m.AddSizeGB), ExtendLimit: GB(m.SizeGBLimit),
		})
	}
	if g := c.Guest; g != nil {
		d.VM = append(d.VM, VM{CPUKind: string(g.CPUKind), CPUs: g.CPUs, MemoryMB: int64(g.MemoryMB), GPUs: g.GPUs, GPUKind: g.GPUKind, Processes: processes})
	}
	if r := c.Restart; r != nil {
		policy := string(r.Policy)
		if r.Policy == bourse.RestartNo {
			policy = "never"
		}
		d.Restart = append(d.Restart, Restart{Policy: policy, Retries: int64(r.MaxRetries), Processes: processes})
	}
	for _, f := range c.Files {
		out := File{GuestPath: f.GuestPath, SecretName: f.SecretName, Processes: processes}
		if f.SecretName == "" {
			if len(f.RawValue) == 0 || !utf8.Valid(f.RawValue) || bytes.IndexByte(f.RawValue, 0) >= 0 {
				s.note("file %s of group %s, which is empty or not text", f.GuestPath, name)
				continue
			}
			out.RawValue = string(f.RawValue)
		}
		d.Files = append(d.Files, out)
	}
	unwritten := map[string]json.RawMessage{
		"processes": c.Processes, "containers": c.Containers, "volumes": c.Volumes,
		"metrics": c.Metrics, "statics": c.Statics,
	}
	unwritten["schedule"], _ = json.Marshal(c.Schedule)
	unwritten["dns"], _ = json.Marshal(c.DNS)
	for _, member := range slices.Sorted(maps.Keys(unwritten)) {
		raw := unwritten[member]
		if !slices.Contains([]string{"", `""`, "{}", "[]", "null"}, string(raw)) {
			s.note("config.%s of group %s", member, name)
		}
	}
	if c.Init.User != "" || c.Init.WorkingDir != "" || c.Task != nil || c.Rootfs != nil || c.Runtime != "" || len(c.Rest) > 0 {
		s.note("settings of group %s for which a configuration has no fields", name)
	}
	if len(c.Requirements) > 0 {
		d.Groups = append(d.Groups, Group{Processes: processes, Requirements: c.Requirements})
	}
	for _, region := range slices.Sorted(maps.Keys(s.regions[name])) {
		s.note("number of machines of group %s in region %s: %d", name, region, s.regions[name][region])
	}
}

// quoted returns a command line that [split] splits into the given words.
func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = w; w == "" || strings.ContainsAny(w, " \t\r\n'\"\\#") {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'"'"'`) + "'"
			if strings.Contains(w, "'") && !strings.ContainsAny(w, `"\`) {
				out[i] = `"` + w + `"`
			}
		}
	}
	return strings.Join(out, " ")
}

// services adds a group's services to d.
func (s *saver) services(d *Definition, c *bourse.Config, processes []string) {
	for _, in := range workload.ServiceConfigs(c) {
		out := Service{
			Protocol: in.Protocol, InternalPort: &in.InternalPort, AutoStop: in.Autostop, AutoStart: in.Autostart, MinRunning: in.MinRunning,
			Processes: processes, Ports: in.Ports, Concurrency: in.Concurrency,
		}
		for j := range in.Checks {
			if check := &in.Checks[j]; check.Type == "http" || check.Type == "" && check.Path != "" {
				out.HTTPChecks = append(out.HTTPChecks, HTTPCheck{timesOf(check), requestOf(check)})
			} else {
				out.TCPChecks = append(out.TCPChecks, TCPCheck{timesOf(check)})
			}
		}
		d.Services = append(d.Services, out)
	}
}

func (s *saver) checks(d *Definition, name string, c *bourse.Config, processes []string) {
	list := workload.CheckConfigs(c)
	for _, key := range slices.Sorted(maps.Keys(list)) {
		in := list[key]
		if d.Checks == nil {
			d.Checks = map[string]Check{}
		}
		if _, ok := d.Checks[key]; ok {
			key = name + "-" + key
		}
		d.Checks[key] = Check{Type: in.Type, Kind: in.Kind, Port: in.Port, Processes: processes, Times: timesOf(&in), Request: requestOf(&in)}
	}
}

func timesOf(c *workload.CheckConfig) Times {
	return Times{bourse.Duration(c.Interval), bourse.Duration(c.Timeout), bourse.Duration(c.Grace)}
}

func requestOf(c *workload.CheckConfig) Request {
	out := Request{Method: c.Method, Path: c.Path, Protocol: c.Protocol, TLSSkipVerify: c.TLSSkipVerify, TLSServerName: c.TLSServerName}
	for _, h := range c.Headers {
		if out.Headers == nil {
			out.Headers = map[string]Values{}
		}
		out.Headers[h.Name] = h.Values
	}
	return out
}
