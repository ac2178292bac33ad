package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newStatus(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "status MACHINE",
		Aliases:           []string{"show"},
		Short:             "Show a machine and its latest events",
		Example:           "  bourse machine status quiet-river-1234",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := find(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(m)
			}
			return printMachine(s, &m)
		},
	}
	s.BindApp(c, &app)
	return c
}

func printMachine(s *cli.Shell, m *machinesapi.Machine) error {
	var f cli.Facts
	f.Add("machine", string(m.ID))
	f.Add("name", m.Name)
	state := string(m.State)
	if m.Cordoned {
		state += ", cordoned: receives no requests"
	}
	f.Add("state", state)
	f.Add("promoted for", string(m.PromotedFor))
	f.Add("app", string(m.App))
	f.Add("region", string(m.Region))
	f.Add("worker", string(m.Worker))
	f.Add("host", hostWarning(s, m))
	f.Add("address", m.PrivateIP)
	addConfig(&f, m.Known())
	if list := servicesOf(m.Known()); len(list) > 0 {
		f.Add("services", servedPorts(list))
		f.Add("access", s.WithProgramName(forwardCommand(m, list)))
	}
	if d := m.ImageRef.Digest; d != "" {
		f.Add("digest", d)
	}
	if m.Port > 0 {
		f.Add("port", fmt.Sprint(m.Port))
	}
	if m.PID > 0 {
		f.Add("pid", fmt.Sprint(m.PID))
	}
	f.Add("schedule", scheduleText(s, m))
	if m.Lease != nil {
		f.Add("lease", fmt.Sprintf("held by %s until %s", cmp.Or(m.Lease.Owner, "someone"), time.Unix(m.Lease.ExpiresAt, 0).Local().Format(time.RFC3339)))
	}
	f.Add("order", string(m.OrderID))
	f.Add("version", string(m.InstanceID))
	f.Add("created", formatTime(s, m.CreatedAt))
	f.Add("updated", formatTime(s, m.UpdatedAt))
	if err := f.Write(s.Out); err != nil {
		return err
	}
	if len(m.Checks) > 0 {
		fmt.Fprintln(s.Out, "\nchecks")
		if err := checkTable(s, m.Checks).Write(s.Out); err != nil {
			return err
		}
	}
	if len(m.Events) == 0 {
		return nil
	}
	fmt.Fprintln(s.Out, "\nevents, newest first")
	t := newEventTable()
	for i := range m.Events {
		t.Row(eventRow(&m.Events[i])...)
	}
	return t.Write(s.Out)
}

func addConfig(f *cli.Facts, c *bourse.Config) {
	if c == nil {
		return
	}
	f.Add("size", cli.Guest(c.Guest))
	f.Add("image", c.Image)
	f.Add("command", commandLine(c.Init.Command()))
	f.Add("user", c.Init.User)
	f.Add("workdir", c.Init.WorkingDir)
	for _, v := range c.Mounts {
		f.Add("volume", fmt.Sprintf("%s at %s", cmp.Or(v.Name, "?")+" "+string(v.Volume), v.Path))
	}
	r := c.RestartPolicy()
	restart := string(r.Policy)
	if r.Policy != bourse.RestartNo {
		restart += fmt.Sprintf(", at most %d times in %s", r.MaxRetries, cli.Age(bourse.RestartWindow))
	}
	f.Add("restart", restart)
	f.Add("standby for", joinIDs(c.Standbys))
	for _, name := range slices.Sorted(maps.Keys(c.Requirements)) {
		f.Add("requires", name+"="+c.Requirements[name].String())
	}
	for _, name := range slices.Sorted(maps.Keys(c.Metadata)) {
		f.Add("metadata", name+"="+c.Metadata[name])
	}
}

func joinIDs(list []bourse.MachineID) string {
	out := make([]string, len(list))
	for i, id := range list {
		out[i] = string(id)
	}
	return strings.Join(out, ", ")
}

// formatTime formats an RFC 3339 time as local time, followed by its age.
func formatTime(s *cli.Shell, at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return at
	}
	return cli.Since(t, s.Now())
}

// commandLine joins words into a command line, quoting them for a shell.
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

func newEventTable() *cli.Table {
	return cli.NewTable("WHEN", "EVENT", "STATE", "BY", "EXIT", "DETAIL").Numbers(4).Narrow(5).Drop(3).Paint(2, stateTone).Wrap()
}

func eventRow(e *machinesapi.Event) []string {
	by, exit := e.Source, "-"
	if e.Added != nil && e.Added.By != "" {
		by += " (" + e.Added.By + ")"
	}
	if e.Request != nil && e.Request.ExitEvent != nil {
		exit = strconv.Itoa(e.Request.ExitEvent.ExitCode)
	}
	return []string{cli.At(time.UnixMilli(e.Timestamp)), string(e.Type), string(e.Status), by, exit, eventDetail(e)}
}

// eventDetail describes an event's reason, the progress of an image pull, or how a program
// ended.
func eventDetail(e *machinesapi.Event) string {
	if e.Reason != "" {
		return e.Reason
	}
	if e.Request != nil && e.Request.Pull != nil {
		p := e.Request.Pull
		if p.Done {
			return fmt.Sprintf("%s in %s", cli.Bytes(p.Bytes), cli.Took(time.Duration(p.TookMS)*time.Millisecond))
		}
		return cli.Bytes(p.Bytes) + " to pull"
	}
	return exitDetail(e)
}

// exitDetail describes how a program ended. It returns "" for other events.
func exitDetail(e *machinesapi.Event) string {
	if e.Request == nil || e.Request.ExitEvent == nil {
		return ""
	}
	x := e.Request.ExitEvent
	var parts []string
	switch {
	case x.OOMKilled:
		parts = append(parts, "out of memory")
	case x.Error != "":
		parts = append(parts, x.Error)
	case x.Signal > 0:
		parts = append(parts, "killed by "+signalName(x.Signal))
	}
	if x.RequestedStop {
		parts = append(parts, "as requested")
	}
	if x.Restarting {
		parts = append(parts, fmt.Sprintf("restarts (%d)", e.Request.RestartCount))
	}
	return strings.Join(parts, ", ")
}
