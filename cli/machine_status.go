package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) machineStatus() *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "status MACHINE",
		Aliases:           []string{"show"},
		Short:             "Show a machine and its latest events",
		Args:              exactly(1),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := s.resolve(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			m, err := s.client().Machine(c.Context(), bourse.AppName(app), id)
			if err != nil {
				return about(err, app, id)
			}
			if s.json {
				return s.printJSON(m)
			}
			return s.printMachine(&m)
		},
	}
	s.bindApp(c, &app)
	return c
}

func (s *shell) printMachine(m *machinesapi.Machine) error {
	var f facts
	f.add("machine", string(m.ID))
	f.add("name", m.Name)
	state := string(m.State)
	if m.Cordoned {
		state += ", cordoned: out of routing"
	}
	f.add("state", state)
	f.add("app", string(m.App))
	f.add("region", string(m.Region))
	f.add("worker", string(m.Worker))
	f.add("host", s.hostDoubt(m))
	f.add("address", m.PrivateIP)
	addConfig(&f, m.Config)
	if d := m.ImageRef.Digest; d != "" {
		f.add("digest", d)
	}
	if m.Port > 0 {
		f.add("port", fmt.Sprint(m.Port))
	}
	if m.PID > 0 {
		f.add("pid", fmt.Sprint(m.PID))
	}
	if m.Lease != nil {
		f.add("lease", fmt.Sprintf("held by %s until %s", orElse(m.Lease.Owner, "somebody"), time.Unix(m.Lease.ExpiresAt, 0).Local().Format(time.DateTime)))
	}
	f.add("order", string(m.OrderID))
	f.add("version", string(m.InstanceID))
	f.add("created", s.when(m.CreatedAt))
	f.add("updated", s.when(m.UpdatedAt))
	if err := f.write(s.Out); err != nil || len(m.Events) == 0 {
		return err
	}
	fmt.Fprintln(s.Out, "\nevents, newest first")
	return eventTable(m.Events).write(s.Out, s.Out.Width)
}

func addConfig(f *facts, c *bourse.Config) {
	if c == nil {
		return
	}
	f.add("size", guest(c.Guest))
	f.add("image", c.Image)
	f.add("command", commandLine(c.Init.Command()))
	f.add("user", c.Init.User)
	f.add("workdir", c.Init.WorkingDir)
	for _, v := range c.Mounts {
		f.add("volume", fmt.Sprintf("%s at %s", orElse(v.Name, "?")+" "+string(v.Volume), v.Path))
	}
	f.add("serves", services(c.Services))
	r := c.RestartPolicy()
	restart := string(r.Policy)
	if r.Policy != bourse.RestartNo {
		restart += fmt.Sprintf(", at most %d times in %s", r.MaxRetries, age(bourse.RestartWindow))
	}
	f.add("restart", restart)
	for _, name := range sortedKeys(c.Requirements) {
		f.add("requires", name+"="+c.Requirements[name].String())
	}
	for _, name := range sortedKeys(c.Metadata) {
		f.add("metadata", name+"="+c.Metadata[name])
	}
}

// services shows which ports a config serves, of what it can be read.
func services(raw json.RawMessage) string {
	var list []service
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return ""
	}
	var parts []string
	for _, s := range list {
		for _, p := range s.Ports {
			parts = append(parts, fmt.Sprintf("%d/%s at its %d", p.Port, s.Protocol, s.InternalPort))
		}
	}
	return strings.Join(parts, ", ")
}

// when shows an RFC 3339 time as it is here, and how long ago it was.
func (s *shell) when(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return at
	}
	return t.Local().Format(time.DateTime) + " (" + age(s.Now().Sub(t)) + " ago)"
}

// commandLine shows words as a shell would take them.
func commandLine(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) }) {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"

func eventTable(events []machinesapi.Event) *table {
	t := newTable("WHEN", "EVENT", "STATE", "BY", "DETAIL").narrow(4)
	for _, e := range events {
		by := e.Source
		if by == machinesapi.SourceWorker {
			by = "worker"
		}
		t.row(time.UnixMilli(e.Timestamp).Local().Format("2006-01-02 15:04:05.000"), string(e.Type), string(e.Status), by, eventDetail(&e))
	}
	return t
}

// eventDetail says what there is to an event beside its type.
func eventDetail(e *machinesapi.Event) string {
	if e.Request != nil && e.Request.Pull != nil {
		p := e.Request.Pull
		if p.Done {
			return fmt.Sprintf("%s in %s", bytesText(p.Bytes), took(time.Duration(p.TookMS)*time.Millisecond))
		}
		return bytesText(p.Bytes) + " to pull"
	}
	return exitDetail(e)
}

// exitDetail says how a program ended, for exit events.
func exitDetail(e *machinesapi.Event) string {
	if e.Request == nil || e.Request.ExitEvent == nil {
		return ""
	}
	x := e.Request.ExitEvent
	var parts []string
	switch {
	case x.Error != "":
		parts = append(parts, x.Error)
	case x.Signal > 0:
		parts = append(parts, fmt.Sprintf("killed by signal %d", x.Signal))
	default:
		parts = append(parts, fmt.Sprintf("exit code %d", x.ExitCode))
	}
	if x.OOMKilled {
		parts = append(parts, "out of memory")
	}
	if x.RequestedStop {
		parts = append(parts, "as asked")
	}
	if x.Restarting {
		parts = append(parts, fmt.Sprintf("restarts (%d)", e.Request.RestartCount))
	}
	return strings.Join(parts, ", ")
}
