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

// Env is the environment in which a command runs.
type Env struct {
	In, Out, Err Stream
	Getenv       func(string) string
	Transport    http.RoundTripper // sends API requests; nil means the default, which trusts only the chosen CA, if any
	Now          func() time.Time
	Version      Version
	Program      string // command that users type to start this program; "" means bourse; see [Shell.WithProgramName]
}

// Process returns the environment of the current process.
func Process(version Version) Env {
	return Env{
		In: newStream(os.Stdin, os.Getenv), Out: newStream(os.Stdout, os.Getenv), Err: newStream(os.Stderr, os.Getenv),
		Getenv: os.Getenv, Now: time.Now, Version: version,
		Program: ownCommand(),
	}
}

// Group is a set of commands under one heading in the root command's help.
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
		err = s.chosen.err // omit the API's address, because no request was sent
	}
	if !s.began && Hints(err) == nil { // cobra's usage errors have no code
		err = Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err), cmd.CommandPath()+" --help")
	}
	s.JSON = s.JSON || !s.began && hasJSONFlag(args)
	code := ExitCode(err)
	if _, remote := err.(ExitStatus); !remote { //nolint:errorlint // verbs return it unwrapped
		s.printError(err)
	}
	return code
}

// hasJSONFlag reports whether args contain --json. It is used if the flags could not be
// parsed.
func hasJSONFlag(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "-j")
}

// Shell holds the environment and the global flags of one invocation.
type Shell struct {
	Env
	Args    []string
	JSON    bool
	api     string
	context string
	token   string
	ca      string // file with the CA's certificates

	alsoTrusted string // CA passed to TrustAlso, preceded by a newline

	once   sync.Once
	chosen target // API chosen by the flags above and the environment; see [Shell.target]
	began  bool   // the command's own code has started, so later errors are not usage errors
}

// Root returns the root command with all of its subcommands.
func Root(s *Shell, commands func(*Shell) []Group) *cobra.Command {
	root := &cobra.Command{
		Use:   "bourse",
		Short: "An exchange for compute: orders for machines are filled at once or refused with reasons",
		Long: `Bourse is an exchange for compute. Workers answer an order for a machine with
quotes. The best quote wins, and the machine runs before the request returns. If
no worker can fill the order, you are told why each one refused.

To get started:
  bourse dev                                        run a whole cluster on this host
  bourse machine run host --region gru -- sleep 60  run a machine in region gru
  bourse quote host --vm-memory 2GiB -- sleep 60    see which workers would accept an order`,
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
	flags.StringVar(&s.api, "api", "", "`URL` of the API (default: BOURSE_API, then the current context, then "+DefaultAPI+")")
	flags.StringVar(&s.context, "context", "", "`name` of a cluster that you have logged in to (default: BOURSE_CONTEXT)")
	flags.StringVar(&s.token, "token", "", "bearer `token` for the API (default: BOURSE_API_TOKEN)")
	flags.StringVar(&s.ca, "ca", "", "PEM `file` with the CA to trust for the API (default: BOURSE_CA)")
	flags.BoolVarP(&s.JSON, "json", "j", false, "print the API's JSON object")
	for _, g := range commands(s) {
		root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title})
		for _, c := range g.Commands {
			c.GroupID = g.Title
			root.AddCommand(c)
		}
	}
	root.AddCommand(s.version(), s.man(commands))
	root.SetFlagErrorFunc(s.flagError)
	s.helpWithProgramName(root)
	return root
}

// PrintJSON prints v as indented JSON.
func (s *Shell) PrintJSON(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// PrintLine prints v as JSON on a single line, for commands that print a sequence of
// values.
func (s *Shell) PrintLine(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Note prints a message for the user to standard error.
func (s *Shell) Note(text string) {
	width, _ := s.Err.Size()
	for line := range strings.SplitSeq(s.WithProgramName(text), "\n") {
		for _, part := range Wrap(line, width, len("  ")) {
			fmt.Fprintln(s.Err, part)
		}
	}
}
