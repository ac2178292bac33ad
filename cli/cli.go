package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/supervise"
)

// Env is everything that commands take from their surroundings.
type Env struct {
	In, Out, Err Stream
	Getenv       func(string) string
	Now          func() time.Time
	Version      Version
	Roles        Roles
}

// Roles are the servers, as cmd/bourse wires them. Each returns when ctx has
// ended and everything it started has, too.
type Roles struct {
	Worker func(ctx context.Context, c WorkerConfig) error
	Broker func(ctx context.Context, c BrokerConfig) error
	NATS   func(ctx context.Context, c NATSServerConfig) error

	// CheckStore looks at the store of a worker that does not run; SalvageStore
	// makes a new one of what is whole in it.
	CheckStore, SalvageStore func(dir string) (StoreReport, error)

	// Supervise runs tasks without a server and gives the names of those that
	// failed.
	Supervise func(ctx context.Context, tasks []supervise.Task, to supervise.Print) (failed []string, err error)
}

// Process is the Env of this very process.
func Process(version Version, roles Roles) Env {
	return Env{
		In: NewStream(os.Stdin), Out: NewStream(os.Stdout), Err: NewStream(os.Stderr),
		Getenv: os.Getenv, Now: time.Now, Version: version, Roles: roles,
	}
}

// Main runs the command line args (without the program's name), tells errors
// on env.Err and gives the exit status.
func Main(ctx context.Context, env Env, args []string) int {
	s := &shell{Env: env, args: args}
	root := s.root()
	root.SetArgs(args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if !s.began { // what cobra says of words and flags has no code
		err = hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), cmd.CommandPath()+" --help")
	}
	code := ExitCode(err)
	if _, remote := err.(remoteExit); !remote { //nolint:errorlint // verbs return it unwrapped
		printError(env.Err, err, s.api)
	}
	return code
}

// shell is one run of the command line: its surroundings and global flags.
type shell struct {
	Env
	args       []string
	api, token string
	ca         string // file with the certificates of the CA to trust; "" means the host's
	json       bool
	trusting   http.RoundTripper // made of ca when it is first needed
	began      bool              // a verb's own code has begun: errors are no longer about usage
}

func (s *shell) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "bourse",
		Short: "An exchange for compute: an order for a machine is filled at once, or refused with reasons",
		Long: `Bourse is an exchange for compute. An order for a machine is answered with quotes
by workers, ranked, and filled on the best one within the request; or refused at
once, and you are told who said no and why.

Begin with:
  bourse dev                                        a whole cluster on this host
  bourse machine run host --region gru -- sleep 60  a machine in region gru
  bourse quote host --vm-memory 2GiB -- sleep 60    what would happen`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       s.Version.String(),
		PersistentPreRun: func(*cobra.Command, []string) {
			s.began = true
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetHelpTemplate(root.HelpTemplate() + "{{if not .HasParent}}\n" + exitHelp + "{{end}}")
	flags := root.PersistentFlags()
	flags.StringVar(&s.api, "api", orElse(s.Getenv("BOURSE_API"), "http://"+DefaultAPI), "`address` of the API; also BOURSE_API")
	flags.StringVar(&s.token, "token", "", "bearer `token` for the API; also BOURSE_API_TOKEN")
	flags.StringVar(&s.ca, "ca", s.Getenv("BOURSE_CA"), "PEM `file` of the CA that the API's certificate is of; also BOURSE_CA")
	flags.BoolVarP(&s.json, "json", "j", false, "print the API's JSON")
	root.AddGroup(
		&cobra.Group{ID: "use", Title: "Machines:"},
		&cobra.Group{ID: "look", Title: "The exchange:"},
		&cobra.Group{ID: "serve", Title: "Servers:"},
	)
	for id, commands := range map[string][]*cobra.Command{
		"use":   {s.machine(), s.task(), s.app(), s.volume(), s.image()},
		"look":  {s.order(), s.quote(), s.reservation(), s.worker(), s.sql(), s.view()},
		"serve": {s.dev(), s.serve(), s.supervise()},
	} {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	root.AddCommand(s.version())
	return root
}

// noun is a command that only holds verbs.
func noun(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownVerb(c, args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(verbs...)
	return c
}

func unknownVerb(c *cobra.Command, word string) error {
	c.SuggestionsMinimumDistance = 2
	text := "unknown command " + bourse.Quoted(word) + " for " + bourse.Quoted(c.CommandPath())
	if near := c.SuggestionsFor(word); len(near) > 0 {
		text += ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return bourse.Errorf(bourse.CodeInvalid, "%s", text)
}

// printJSON writes v as the API would, indented for people.
func (s *shell) printJSON(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine prints one of several values, each on a line of its own.
func (s *shell) printLine(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// say writes a line for a person to standard error.
func (s *shell) say(text string) { fmt.Fprintln(s.Err, text) }

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
