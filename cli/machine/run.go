package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

type runFlags struct {
	place.Flags
	order   string
	detach  bool
	attach  bool
	timeout time.Duration
}

func newRun(s *cli.Shell) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] IMAGE [COMMAND...]",
		Short: "Place an order for a machine",
		Long: `Place an order for a machine. The region's workers answer with quotes, and the
best one is claimed. When the command returns, the machine has started, or you are
told why each worker refused.

An image is a name such as nginx or registry.example.com/app:v2. Workers that
already have the image are preferred. The image "host" runs a program directly on
the worker's host. A relative path such as ./server is resolved in the current
directory of this command.

Flags go before or directly after the image. Everything from the command's first
word on, or after --, belongs to the command.

With --attach, the program behaves as if it ran locally: its output is printed
until it exits, and its exit status becomes the command's. Unless --restart is
given, it runs once. Ctrl-C leaves the machine running, or destroys it with --rm.`,
		Example: `  bourse machine run nginx --region gru --port 80
  bourse machine run host --region gru -- ./server
  bourse machine run host -r gru,eu --vm-memory 1GiB -e MODE=fast -- sleep 600
  bourse machine run host --rm --require slots=2 --require zone=b -- ./job`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: cli.Complete(s.Images),
		RunE: func(c *cobra.Command, args []string) error {
			f.SkipLaunch = f.SkipLaunch || len(f.Standbys) > 0
			if !c.Flags().Changed("attach") {
				f.attach = f.Remove() && s.Out.TTY && !s.JSON && !f.detach && !f.SkipLaunch
			}
			if f.attach && (s.JSON || f.detach || f.SkipLaunch) {
				return bourse.Errorf(bourse.CodeInvalid, "--attach cannot be combined with --detach, --skip-launch or --json")
			}
			return runMachine(c.Context(), s, &f, args)
		},
	}
	f.Bind(s, c)
	s.CommandLast(c)
	flags := c.Flags()
	flags.StringVar(&f.order, "order-id", "", "`id` of the order, a ULID; repeating the command with the same id returns the same machine")
	flags.BoolVar(&f.attach, "attach", false, "print the program's output until it exits, and exit with its status (default with --rm on a terminal)")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait for the machine to start")
	flags.DurationVar(&f.timeout, "wait-timeout", 5*time.Minute, "maximum `time` to wait for the machine to start")
	return c
}

func runMachine(ctx context.Context, s *cli.Shell, f *runFlags, args []string) error {
	for i, word := range f.Standbys {
		id, err := resolve(ctx, s, f.App, word)
		if err != nil {
			return cli.FlagError("--standby-for", err)
		}
		f.Standbys[i] = string(id)
	}
	req, err := f.Request(args)
	if err != nil {
		return err
	}
	if err := mountVolume(ctx, s, f, &req); err != nil {
		return err
	}
	order := bourse.OrderID(f.order)
	if order == "" {
		order, req.FirstTry = bourse.NewOrderID(), true // chosen by the client, so that the request can be repeated if its reply is lost
	} else if err := order.Validate(); err != nil {
		return cli.FlagError("--order-id", err)
	}
	if f.attach {
		req.Config.AutoDestroy = false // the function attached destroys the machine instead
		if req.Config.Restart == nil {
			req.Config.Restart = &bourse.Restart{Policy: bourse.RestartNo} // the machine stops when its program exits
		}
	}
	m, err := create(ctx, s, f.App, req, order)
	if err != nil {
		return place.Explain(s, err, f.App, order)
	}
	warn(s, &m)
	if f.attach {
		return attached(ctx, s, string(m.App), m.ID, f.Remove())
	}
	if !f.SkipLaunch && !f.detach && !m.State.Settled() {
		reply, err := wait(ctx, s, f.App, m.ID, []string{machinesapi.StateSettled}, f.timeout)
		if err != nil && ctx.Err() != nil {
			return cli.Interrupted("interrupted; the machine keeps running: bourse machine status" + appFlag(m.App) + " " + string(m.ID))
		}
		if err != nil {
			return err
		}
		m.State = reply.State
	}
	if text := served(&m.Machine); text != "" {
		defer s.Note(text)
	}
	if s.JSON {
		return s.PrintJSON(m.Machine)
	}
	return printCreated(s, &m)
}

// warn prints the order's warnings. It omits the warning about services if served returns a
// more detailed note.
func warn(s *cli.Shell, m *machinesapi.CreatedMachine) {
	said := served(&m.Machine) != ""
	place.Warn(s, slices.DeleteFunc(slices.Clone(m.Warnings), func(w bourse.Warning) bool { return said && w.Field == "config.services" }))
}

// create places the order and shows its progress.
func create(ctx context.Context, s *cli.Shell, app string, req machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.CreatedMachine, error) {
	end := followPull(ctx, s, bourse.AppName(app), req.Config.Image, order)
	m, err := s.Client().Create(ctx, bourse.AppName(app), req, order)
	end(err == nil)
	return m, err
}

func printCreated(s *cli.Shell, m *machinesapi.CreatedMachine) error {
	var f cli.Facts
	f.Add("machine", string(m.ID)+"  "+m.Name)
	where := fmt.Sprintf("%s in region %s", m.State, m.Region)
	if m.Worker != "" {
		where += fmt.Sprintf(" on worker %s", m.Worker)
	}
	f.Add("state", where)
	if m.Port > 0 {
		f.Add("port", fmt.Sprint(m.Port))
	}
	f.Add("order", string(m.OrderID))
	f.Add("time", timing(m.Timing))
	if err := f.Write(s.Out); err != nil {
		return err
	}
	if s.Out.TTY {
		s.Note("\noutput:    bourse machine logs" + appFlag(m.App) + " " + string(m.ID) + "\nplacement: bourse order show " + string(m.OrderID))
	}
	return nil
}

// timing formats the server's measurements of how long the request took.
func timing(t machinesapi.Timing) string {
	var total time.Duration
	var parts []string
	for _, name := range []string{"quote", "rank", "claim", "start"} {
		if d, ok := t[name]; ok {
			total += d
			parts = append(parts, name+" "+cli.Took(d))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if d, ok := t["total"]; ok {
		total = d
	}
	return cli.Took(total) + " (" + strings.Join(parts, ", ") + ")"
}

// appFlag returns the --app flag for a suggested command, or "" for the default app.
func appFlag(app bourse.AppName) string {
	if app == "" || app == cli.DefaultApp {
		return ""
	}
	return " -a " + string(app)
}
