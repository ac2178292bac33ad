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

// NewLogs returns the "logs" command, which exists at the top level and below
// "machine".
func NewLogs(s *cli.Shell) *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:   "logs [MACHINE...]",
		Short: "Show the output of machines' programs",
		Long: `Show the output of machines' programs, oldest first: their standard output on
standard output, their standard error on standard error. Without a MACHINE, the
output of all machines of the app is shown. Each line then starts with the
machine's name, which has its own color on a terminal. With -f, new output is
printed as it is written, including that of new machines; this continues without
gaps if a worker or a broker is restarted. With --json, each line is an object.`,
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
				return about(l.showOne(c.Context(), id), f.app, id)
			}
			return l.showAll(c.Context(), args)
		},
	}
	s.BindApp(c, &f.app)
	flags := c.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "print new output as it is written, until Ctrl-C or until the machines are destroyed")
	flags.StringVar(&f.since, "since", "", "only lines since this `time`: 5m for 5 minutes ago, or 2006-01-02T15:04:05Z")
	flags.IntVarP(&f.tail, "tail", "n", 0, "`number` of latest lines to show (0 means all)")
	flags.BoolVarP(&f.times, "timestamps", "T", false, "show each line's time")
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

// parseSince parses a time, or a duration before now.
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

// logLine is a line of output. It includes the machine if several machines are shown.
type logLine struct {
	Machine bourse.MachineID `json:"machine,omitempty"`
	Name    string           `json:"name,omitempty"`
	machinesapi.LogLine
	label string // text printed before the line
	color int    // the label's terminal color number; 0 if none
}

// logPrinter returns a function that prints lines. On a terminal, it escapes control
// sequences other than colors.
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
		if w.Color && l.color > 0 {
			label = fmt.Sprintf("\x1b[%dm%s\x1b[0m", l.color, label)
		}
		_, err := io.WriteString(w, label+text+"\n")
		return err
	}
}
