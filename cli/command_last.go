package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// CommandLast treats the last arguments of c as a remote command with flags of its own.
// The flags of c may precede the first argument (such as the image) or directly follow
// it; they end at the remote command or at "--". c.RunE receives the first argument,
// followed by the remote command.
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

// flagsBehind parses the flags that follow the first argument, and returns the arguments
// after them.
func flagsBehind(c *cobra.Command, args []string) ([]string, error) {
	err := c.Flags().Parse(args[1:])
	if help, _ := c.Flags().GetBool("help"); help && err == nil {
		err = pflag.ErrHelp
	}
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return c.Flags().Args(), err
	}
	return nil, Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err),
		c.CommandPath()+" "+args[0]+" -- COMMAND, with the command's own flags after --", c.CommandPath()+" --help")
}
