package cli

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) machineLogs() *cobra.Command {
	var app, since string
	var follow, times bool
	var tail int
	c := &cobra.Command{
		Use:   "logs MACHINE",
		Short: "Show what a machine's program has written",
		Long: `Show what a machine's program has written, oldest first: its standard output on
standard output, its standard error on standard error. With --json, one object
a line.`,
		Example: `  bourse machine logs -f quiet-river-1234
  bourse machine logs --since 5m -n 100 148e21ea1d5389`,
		Args:              exactly(1),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := parseSince(since, s.Now())
			if err != nil {
				return err
			}
			if tail < 0 {
				return bourse.Errorf(bourse.CodeInvalid, "--tail %d: use 0 (all) or more", tail)
			}
			id, err := s.resolve(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			want := machinesapi.LogQuery{Since: from, Tail: tail, Follow: follow}
			err = s.client().Logs(c.Context(), bourse.AppName(app), id, want, s.logPrinter(times))
			if follow && c.Context().Err() != nil {
				return context.Cause(c.Context()) // the way to end -f
			}
			return about(err, app, id)
		},
	}
	s.bindApp(c, &app)
	flags := c.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on as the program writes, until Ctrl-C or the machine is destroyed")
	flags.StringVar(&since, "since", "", "only lines since `then`: 5m ago, or a time such as 2006-01-02T15:04:05Z")
	flags.IntVarP(&tail, "tail", "n", 0, "only the last so `many` lines (0: all)")
	flags.BoolVarP(&times, "timestamps", "T", false, "show when each line was written")
	return c
}

// parseSince reads a duration before now or a time.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, bourse.Errorf(bourse.CodeInvalid, "--since %s: use 5m or a time such as 2006-01-02T15:04:05Z", bourse.Quoted(s))
	}
	return t, nil
}

// logPrinter writes lines as the program wrote them; on a terminal what would
// act on it is shown instead, but for colours.
func (s *shell) logPrinter(times bool) func(machinesapi.LogLine) error {
	if s.json {
		e := json.NewEncoder(s.Out)
		e.SetEscapeHTML(false)
		return func(l machinesapi.LogLine) error { return e.Encode(l) }
	}
	return func(l machinesapi.LogLine) error {
		w := s.Out
		if l.Stream == "stderr" {
			w = s.Err
		}
		text := l.Text
		if w.TTY {
			text = screenText(text)
		}
		if times {
			text = l.At.Local().Format("2006-01-02 15:04:05.000") + "  " + text
		}
		_, err := io.WriteString(w, text+"\n")
		return err
	}
}
