package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewOpen returns the "open" command.
func NewOpen(s *cli.Shell) *cobra.Command {
	var app string
	var all bool
	c := &cobra.Command{
		Use:   "open [APP]",
		Short: "Print an app's URL and open it in a browser",
		Long: `Print the URL at which a proxy serves an app. On a terminal, also open it with the
program that $BROWSER names, or with xdg-open if it is installed.`,
		Example: `  bourse open
  bourse open shop
  curl "$(bourse open shop)"`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := machinesapi.Proxies{Client: s.Client()}.Of(c.Context(), bourse.AppName(app))
			if err != nil {
				return notFound(err)
			}
			found := cli.URLs(list)
			if len(found) == 0 {
				return cli.Hint(bourse.Errorf(bourse.CodeNotFound, "no proxy serves app %s", bourse.Quoted(app)),
					"bourse proxy status "+app, "bourse machine run --port 80 --app "+app)
			}
			if !all {
				found = found[:1]
			}
			if s.JSON {
				return s.PrintJSON(found)
			}
			for _, one := range found {
				fmt.Fprintln(s.Out, cli.Clean(one))
			}
			if all || !s.Out.TTY {
				return nil
			}
			return browse(c.Context(), s, found[0])
		},
	}
	s.BindApp(c, &app).OrArgument()
	c.Flags().BoolVar(&all, "all", false, "print all URLs without opening any")
	return c
}

// browse opens a URL in a browser, if one is installed and the scheme is HTTP or HTTPS.
func browse(ctx context.Context, s *cli.Shell, at string) error {
	if !isHTTP(at) {
		return nil // a browser cannot open other URLs
	}
	first, _, _ := strings.Cut(s.Getenv("BROWSER"), ":") // by convention, BROWSER is a list separated by colons
	words := strings.Fields(cmp.Or(first, "xdg-open"))
	program, err := exec.LookPath(words[0])
	if err != nil {
		if first != "" {
			return bourse.Errorf(bourse.CodeInvalid, "$BROWSER: %w", err)
		}
		return nil
	}
	open := exec.CommandContext(ctx, program, arguments(words[1:], at)...)
	open.Stderr = s.Err
	if err := open.Run(); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "%s: %w", words[0], err)
	}
	return nil
}

// arguments replaces %s in a browser's arguments with the URL. If %s does not occur, it
// appends the URL.
func arguments(words []string, at string) (out []string) {
	placed := false
	for _, w := range words {
		placed = placed || strings.Contains(w, "%s")
		out = append(out, strings.ReplaceAll(w, "%s", at))
	}
	if !placed {
		out = append(out, at)
	}
	return out
}

func isHTTP(at string) bool {
	u, err := url.Parse(at)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https")
}
