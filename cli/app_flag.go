package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy/config"
)

// DefaultApp is the app that a command uses if the user and the working directory do not
// specify one. It does not have to be created first.
const DefaultApp = "default"

// AppFlag is a command's --app flag. If the flag is not set, the app comes from BOURSE_APP, then
// from the working directory's configuration, and is otherwise [DefaultApp]. Parent directories are
// not searched, so that a file that other users can write, such as /tmp/fly.toml, cannot determine
// the app of a command that runs in a subdirectory.
type AppFlag struct {
	shell    *Shell
	value    *string
	file     *string  // configuration file to read instead of the working directory's; may be nil or ""
	instead  []string // flags that select several apps; if one of them is set, no app is resolved
	argument bool     // the command's first argument may name the app
	required bool     // a command without an app fails instead of using DefaultApp
}

// BindApp adds the flag --app to c. It wraps c.RunE and c.ValidArgsFunction so that *app is set
// before they run. The caller must set both of them before it calls BindApp.
func (s *Shell) BindApp(c *cobra.Command, app *string) *AppFlag {
	f := &AppFlag{shell: s, value: app}
	c.Flags().StringVarP(app, "app", "a", "", "`app` (default: BOURSE_APP, then the app in this directory's configuration, then "+DefaultApp+")")
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

// Unless skips the lookup of the app if one of the given flags is set. Such a flag selects several
// apps, for example --all-apps.
func (f *AppFlag) Unless(flags ...string) *AppFlag {
	f.instead = flags
	return f
}

// OrArgument allows the app to be specified as the command's first argument.
func (f *AppFlag) OrArgument() *AppFlag {
	f.argument = true
	return f
}

// Required makes the command fail, instead of using [DefaultApp], if the app is not specified
// anywhere. file points to the value of the command's --config flag.
func (f *AppFlag) Required(c *cobra.Command, file *string) *AppFlag {
	f.required, f.file = true, file
	c.Flags().Lookup("app").Usage = "`app` (default: BOURSE_APP, then the app in the configuration)"
	return f
}

// resolve sets the app. If the app's name comes from a configuration file, resolve returns
// that file's name.
func (f *AppFlag) resolve(c *cobra.Command, args []string) (from string, err error) {
	given := c.Flags().Changed("app")
	for _, flag := range f.instead {
		if c.Flags().Changed(flag) {
			return "", nil
		}
	}
	if f.argument && len(args) > 0 {
		if given && *f.value != args[0] {
			return "", bourse.Errorf(bourse.CodeInvalid, "--app %s and app %s: only one app can be given", bourse.Quoted(*f.value), bourse.Quoted(args[0]))
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

// NoApp returns the error that a command reports if it requires an app and the user did not specify
// one.
func NoApp() error {
	return Hint(bourse.Errorf(bourse.CodeInvalid, "no app given, and no configuration in this directory names one"), "--app NAME or BOURSE_APP")
}

// ConfiguredApp returns the app that a configuration file names, and the file's name. If file is
// "", it reads the configuration in the working directory, and returns "" if there is none. It
// returns an error if the file does not name an app. Other mistakes in the file are ignored,
// because they do not affect the app's name.
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
