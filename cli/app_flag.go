package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy/config"
)

// DefaultApp is the app of a command that neither the user nor the working
// directory gives one. It exists without being created.
const DefaultApp = "default"

// AppFlag is the --app flag of a command. Where the flag is not given, the app is
// that of BOURSE_APP, then the one that the working directory's configuration
// names, then [DefaultApp]. Parent directories are not searched: a file that others
// may write, such as /tmp/fly.toml, must not choose the app of a command that runs
// somewhere below it.
type AppFlag struct {
	shell    *Shell
	value    *string
	file     *string  // configuration to read instead of the working directory's; may be nil or ""
	instead  []string // flags without which the command has no single app
	argument bool     // the command's first argument may name the app
	required bool     // there is no default app
}

// BindApp adds the flag --app to a command whose RunE and ValidArgsFunction are set:
// when they are called, app is set.
func (s *Shell) BindApp(c *cobra.Command, app *string) *AppFlag {
	f := &AppFlag{shell: s, value: app}
	c.Flags().StringVarP(app, "app", "a", "", "`app` (default: BOURSE_APP, else the app of the configuration here, else "+DefaultApp+")")
	CompleteFlag(c, "app", s.Apps)
	run, complete := c.RunE, c.ValidArgsFunction
	c.RunE = func(c *cobra.Command, args []string) error {
		from, err := f.resolve(c, args)
		if err != nil {
			return err
		}
		if quiet, _ := c.Flags().GetBool("quiet"); from != "" && !quiet && !s.JSON {
			s.Note("app " + *app + " (from " + Clean(from) + ")")
		}
		return run(c, args)
	}
	if complete != nil {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if _, err := f.resolve(c, args); err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return complete(c, args, word)
		}
	}
	return f
}

// Instead names the flags that select several apps: with one of them no app is chosen.
func (f *AppFlag) Instead(flags ...string) *AppFlag {
	f.instead = flags
	return f
}

// OrArgument lets the command's first argument name the app.
func (f *AppFlag) OrArgument() *AppFlag {
	f.argument = true
	return f
}

// Required makes it an error when nothing names an app. file is the variable of the
// command's --config flag.
func (f *AppFlag) Required(c *cobra.Command, file *string) *AppFlag {
	f.required, f.file = true, file
	c.Flags().Lookup("app").Usage = "`app` (default: BOURSE_APP, else the app of the configuration)"
	return f
}

// resolve sets the app. It returns the configuration file that names it, or "".
func (f *AppFlag) resolve(c *cobra.Command, args []string) (from string, err error) {
	given := c.Flags().Changed("app")
	for _, flag := range f.instead {
		if c.Flags().Changed(flag) {
			return "", nil
		}
	}
	if f.argument && len(args) > 0 {
		if given && *f.value != args[0] {
			return "", bourse.Errorf(bourse.CodeInvalid, "--app %s and app %s: name one app", bourse.Quoted(*f.value), bourse.Quoted(args[0]))
		}
		*f.value = args[0]
		return "", nil
	}
	if given {
		return "", FlagError("--app", bourse.AppName(*f.value).Validate())
	}
	if *f.value = f.shell.Getenv("BOURSE_APP"); *f.value != "" {
		return "", FlagError("BOURSE_APP", bourse.AppName(*f.value).Validate())
	}
	file := ""
	if f.file != nil {
		file = *f.file
	}
	name, from, err := ConfiguredApp(file)
	switch {
	case err != nil:
		return "", err
	case name == "" && f.required:
		return "", NoApp()
	}
	*f.value = cmp.Or(string(name), DefaultApp)
	return from, nil
}

// NoApp is the error of a command that needs an app where nothing names one.
func NoApp() error {
	return Hint(bourse.Errorf(bourse.CodeInvalid, "no app given, and no configuration in this directory names one"), "--app NAME or BOURSE_APP")
}

// ConfiguredApp returns the app that a configuration names, and the file's name. Without
// a file it reads the working directory's, and returns "" if there is none. A file that
// names no app is an error; other mistakes in it are not, since they say nothing about
// the app.
func ConfiguredApp(file string) (bourse.AppName, string, error) {
	if file == "" {
		found, err := config.Find(".")
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return "", "", nil
		}
		if err != nil {
			return "", "", Hint(err, "--app NAME or BOURSE_APP")
		}
		file = found
	}
	c, err := config.Load(file)
	switch {
	case c != nil && c.AppName != "":
		err = bourse.AppName(c.AppName).Validate()
		if err != nil {
			err = bourse.Errorf(bourse.CodeInvalid, "%s: %w", file, err)
		}
	case err == nil:
		err = bourse.Errorf(bourse.CodeInvalid, "%s does not name an app", file)
	}
	if err != nil {
		return "", "", Hint(err, "--app NAME or BOURSE_APP")
	}
	return bourse.AppName(c.AppName), file, nil
}
