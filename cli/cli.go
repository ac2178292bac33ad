package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// Env is everything that commands take from their surroundings.
type Env struct {
	In, Out, Err Stream
	Getenv       func(string) string
	Transport    http.RoundTripper // of requests to the API; nil: the usual one, or one that trusts the CA of --ca
	Now          func() time.Time
	Version      Version
	Program      string // what a person types for it, "" for bourse; see [Shell.Typed]
}

// Process is the Env of this very process.
func Process(version Version) Env {
	return Env{
		In: NewStream(os.Stdin, os.Getenv), Out: NewStream(os.Stdout, os.Getenv), Err: NewStream(os.Stderr, os.Getenv),
		Getenv: os.Getenv, Now: time.Now, Version: version,
		Program: started(),
	}
}

// Group is commands under one heading of the root command's help.
type Group struct {
	Title    string
	Commands []*cobra.Command
}

// Main runs the command line args (without the program's name), prints errors
// on env.Err and returns the exit status.
func Main(ctx context.Context, env Env, args []string, commands func(*Shell) []Group) int {
	s := &Shell{Env: env, Args: args}
	root := Root(s, commands)
	root.SetArgs(args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if interrupted(ctx, err) {
		return s.endInterrupted(err)
	}
	if s.chosen.err != nil && errors.Is(err, s.chosen.err) {
		err = s.chosen.err // without the address of the API, which was not asked
	}
	if !s.began && Hints(err) == nil { // cobra's errors about words and flags have no code
		err = Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), cmd.CommandPath()+" --help")
	}
	s.JSON = s.JSON || !s.began && asksJSON(args)
	code := ExitCode(err)
	if _, remote := err.(ExitStatus); !remote { //nolint:errorlint // verbs return it unwrapped
		s.printError(err)
	}
	return code
}

// asksJSON reports whether --json is among flags that could not be read.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "-j")
}

// Shell is one run of the command line: its surroundings and global flags.
type Shell struct {
	Env
	Args    []string
	JSON    bool
	api     string
	context string
	token   string
	ca      string // file with the certificates of the CA to trust
	once    sync.Once
	chosen  target // by all of these and the environment; see [Shell.target]
	began   bool   // a verb's own code has begun: errors are no longer about usage
}

// Root returns the command that all others are below.
func Root(s *Shell, commands func(*Shell) []Group) *cobra.Command {
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
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: cmp.Or(s.Program, programName)},
		Args:          onlyVerbs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRun: func(*cobra.Command, []string) {
			s.began = true
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	usage := strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80")
	root.SetUsageTemplate(strings.Replace(usage, "{{if .Runnable}}", "{{if and .Runnable (or .HasExample (not .HasAvailableSubCommands))}}", 1))
	root.SetHelpTemplate(root.HelpTemplate() + "{{if not .HasParent}}\n" + exitHelp + "{{end}}")
	flags := root.PersistentFlags()
	flags.StringVar(&s.api, "api", "", "`URL` of the API; also BOURSE_API (default: the current context's, or "+DefaultAPI+")")
	flags.StringVar(&s.context, "context", "", "`name` of a cluster that you have logged in to; also BOURSE_CONTEXT")
	flags.StringVar(&s.token, "token", "", "bearer `token` for the API; also BOURSE_API_TOKEN")
	flags.StringVar(&s.ca, "ca", "", "PEM `file` of the CA to trust for the API; also BOURSE_CA")
	flags.BoolVarP(&s.JSON, "json", "j", false, "print the API's JSON")
	for _, g := range commands(s) {
		root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title})
		for _, c := range g.Commands {
			c.GroupID = g.Title
			root.AddCommand(c)
		}
	}
	root.AddCommand(s.version(), s.man(commands))
	root.SetFlagErrorFunc(s.flagError)
	s.typedHelp(root)
	return root
}

// PrintJSON writes v as the API would, indented for people.
func (s *Shell) PrintJSON(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// PrintLine prints one of several values, each on a line of its own.
func (s *Shell) PrintLine(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Note writes a line for a person to standard error.
func (s *Shell) Note(text string) {
	width, _ := s.Err.Size()
	for line := range strings.SplitSeq(s.Typed(text), "\n") {
		for _, part := range Wrap(line, width, len("  ")) {
			fmt.Fprintln(s.Err, part)
		}
	}
}
