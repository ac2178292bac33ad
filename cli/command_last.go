package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// CommandLast makes the last words of c a command that is run elsewhere, with
// flags of its own: those of c may be before the first word (the image, say)
// and right behind it, and end where the command begins, or at "--". c.RunE
// gets the first word, then the command.
func (s *Shell) CommandLast(c *cobra.Command) {
	if len(s.Args) > 0 && strings.HasPrefix(s.Args[0], cobra.ShellCompRequestCmd) {
		return // flags are completed wherever they may be
	}
	c.Flags().SetInterspersed(false)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.Flags().ArgsLenAtDash() < 0 {
			rest, err := flagsBehind(c, args)
			if err != nil {
				return err
			}
			args = append(args[:1:1], rest...)
		}
		return run(c, args)
	}
}

// flagsBehind reads the flags behind the first word, and returns what follows
// them.
func flagsBehind(c *cobra.Command, args []string) ([]string, error) {
	err := c.Flags().Parse(args[1:])
	if help, _ := c.Flags().GetBool("help"); help && err == nil {
		err = pflag.ErrHelp
	}
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return c.Flags().Args(), err
	}
	return nil, Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err),
		"flags of the command itself go behind --: "+c.CommandPath()+" "+args[0]+" -- …", c.CommandPath()+" --help")
}
