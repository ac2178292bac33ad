package machine

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewLogs returns the command that shows logs, for the command line itself and for the
// commands of machines.
func NewLogs(s *cli.Shell) *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:   "logs [MACHINE...]",
		Short: "Show what machines' programs have written",
		Long: `Show what machines' programs have written, oldest first: their standard output on
standard output, their standard error on standard error. Without a MACHINE it
shows all of the app's, with each machine's name in front of its lines, on a
terminal in a colour of its own; with -f also those that are made meanwhile.
Following goes on where it was when a worker or a broker is started again. With
--json, one object a line.`,
		Example: `  bourse machine logs -f quiet-river-1234
  bourse machine logs -a shop -f --timestamps
  bourse machine logs --since 5m -n 100 148e21ea1d5389`,
		ValidArgsFunction: completeMachine(s, &f.app),
		RunE: func(c *cobra.Command, args []string) error {
			want, err := f.query(s.Now())
			if err != nil {
				return err
			}
			l := &logs{shell: s, app: f.app, want: want, follow: f.follow, print: logPrinter(s, f.times)}
			if len(args) == 1 {
				id, err := resolve(c.Context(), s, f.app, args[0])
				if err != nil {
					return err
				}
				return about(l.one(c.Context(), id), f.app, id)
			}
			return l.all(c.Context(), args)
		},
	}
	s.BindApp(c, &f.app)
	flags := c.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on as the programs write, until Ctrl-C or the machines are destroyed")
	flags.StringVar(&f.since, "since", "", "only lines since `then`: 5m ago, or a time such as 2006-01-02T15:04:05Z")
	flags.IntVarP(&f.tail, "tail", "n", 0, "only the last so `many` lines (0: all)")
	flags.BoolVarP(&f.times, "timestamps", "T", false, "show when each line was written")
	return c
}

type logFlags struct {
	app, since    string
	follow, times bool
	tail          int
}

func (f *logFlags) query(now time.Time) (machinesapi.LogQuery, error) {
	from, err := parseSince(f.since, now)
	if err == nil && f.tail < 0 {
		err = bourse.Errorf(bourse.CodeInvalid, "--tail %d: use 0 (all) or more", f.tail)
	}
	return machinesapi.LogQuery{Since: from, Tail: f.tail}, err
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

// logLine is a line, and whose it is where lines of several machines are shown.
type logLine struct {
	Machine bourse.MachineID `json:"machine,omitempty"`
	Name    string           `json:"name,omitempty"`
	machinesapi.LogLine
	label  string // in front of it
	colour int    // of the label where colours are wanted, as terminals number them; 0: none
}

// logPrinter writes lines as programs wrote them; on a terminal what would act on
// it is shown instead, but for colours.
func logPrinter(s *cli.Shell, times bool) func(logLine) error {
	if s.JSON {
		e := json.NewEncoder(s.Out)
		e.SetEscapeHTML(false)
		return func(l logLine) error { return e.Encode(l) }
	}
	return func(l logLine) error {
		w := s.Out
		if l.Stream == "stderr" {
			w = s.Err
		}
		text := l.Text
		if w.TTY {
			text = screenText(text)
		}
		if times {
			text = cli.At(l.At) + "  " + text
		}
		label := l.label
		if w.Color && l.colour > 0 {
			label = fmt.Sprintf("\x1b[%dm%s\x1b[0m", l.colour, label)
		}
		_, err := io.WriteString(w, label+text+"\n")
		return err
	}
}
