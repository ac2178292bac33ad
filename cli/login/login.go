package login

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// New returns the "login" command.
func New(s *cli.Shell) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to a cluster and make it the current one",
		Long: `Store a cluster's address, CA and token as a context, and make it the current one.
The token comes from --token, BOURSE_API_TOKEN or standard input; on a terminal, you
are prompted for it. An API on loopback needs no token if its servers have created one
for you. Nothing is stored unless the API accepts the token.

Contexts are stored in ~/.config/bourse/contexts.toml (or below XDG_CONFIG_HOME),
which only you can read.`,
		Example: `  bourse login https://api.example.com:4280 --ca ca.pem
  bourse login api.example.com --name production < token`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flag("api").Changed || c.Flag("context").Changed {
				return bourse.Errorf(bourse.CodeInvalid, "pass the API's URL as an argument, not with --api or --context")
			}
			return login(c.Context(), s, args[0], name)
		},
	}
	c.Flags().StringVar(&name, "name", "", "`name` of the context (default: the URL's host)")
	return c
}

// Cluster describes a context in the output of commands.
type Cluster struct {
	Name    string `json:"name"`
	API     string `json:"api"`
	CA      bool   `json:"ca"`      // the context has its own CA
	Token   bool   `json:"token"`   // the context has a token
	Current bool   `json:"current"` // commands use this context by default
}

func login(ctx context.Context, s *cli.Shell, address, name string) error {
	u, err := parseURL(address)
	if err != nil {
		return err
	}
	name = cmp.Or(name, u.Hostname())
	if err := cli.CheckContextName(name); err != nil {
		return cli.Hint(err, "another name, with --name")
	}
	if _, err := cli.LoadContexts(s.Getenv); err != nil {
		return err // fail before asking the user for a token
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		s.Note("warning: " + u.String() + " is not encrypted, so the token can be intercepted")
	}
	one := cli.Context{API: u.String()}
	if one.CA, err = s.GivenCA(); err != nil {
		return err
	}
	if one.Token, err = tokenFor(ctx, s, u); err != nil {
		return err
	}
	s.UseAPI(one)
	tokens, err := s.Client().Tokens().Current(ctx)
	if err != nil {
		return explain(err, u)
	}
	all, err := cli.UpdateContexts(s.Getenv, func(all *cli.Contexts) error {
		all.ByName[name], all.Current = one, name
		return nil
	})
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(describe(all, s.Getenv, name))
	}
	_, err = fmt.Fprintf(s.Out, "%s  logged in%s; now the current context\n", name, purpose(tokens))
	return err
}

// explain adds hints to an error from the API. The hints suggest arguments and flags of
// "bourse login".
func explain(err error, u *url.URL) error {
	_, replied := errors.AsType[*machinesapi.ReplyError](err)
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case replied && bourse.CodeOf(err) == bourse.CodeUnauthorized:
		return cli.Hint(err, "another token, or another URL")
	case replied:
		return cli.Hint(err, "the URL of a broker: bourse login https://HOST:PORT")
	case errors.Is(err, http.ErrSchemeMismatch):
		other := url.URL{Scheme: "https", Host: u.Host}
		if u.Scheme == "https" {
			other.Scheme = "http"
		}
		return cli.Hint(err, "bourse login "+other.String())
	case untrusted:
		return cli.Hint(err, "--ca FILE, with the cluster's CA (ca.pem)")
	}
	return err
}

// purpose describes the permissions of the stored token.
func purpose(tokens []machinesapi.CurrentToken) string {
	if len(tokens) == 0 {
		return ""
	}
	t := tokens[0]
	var text string
	switch {
	case len(t.Apps) > 0:
		text = fmt.Sprintf(", for %d apps of %s", len(t.Apps), t.Org)
		if len(t.Apps) == 1 {
			text = fmt.Sprintf(", for app %s of %s", t.Apps[0], t.Org)
		}
	case t.Org == machinesapi.AllOrgs:
		text = ", for everything"
	case t.Org != "":
		text = ", for all of " + t.Org
	}
	if t.ReadOnly {
		text += ", read-only"
	}
	return cli.Clean(text)
}

// parseURL parses an API's address. The scheme defaults to http on loopback and to https
// otherwise.
func parseURL(address string) (*url.URL, error) {
	invalid := func(why string) error {
		return cli.Hint(bourse.Errorf(bourse.CodeInvalid, "%s is not the URL of an API: %s", bourse.Quoted(address), why), "bourse login https://HOST:PORT")
	}
	if !strings.Contains(address, "://") {
		host := address
		if h, _, err := net.SplitHostPort(address); err == nil {
			host = h
		}
		scheme := "https://"
		if isLoopback(strings.Trim(host, "[]")) {
			scheme = "http://"
		}
		address = scheme + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, invalid("it cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, invalid("its scheme is neither http nor https")
	case u.Hostname() == "":
		return nil, invalid("it has no host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, invalid("it may only consist of a scheme, a host and a port")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback()
	}
	return host == "localhost"
}

// tokenFor returns the token to log in with, from a flag, the environment or standard
// input. It returns "" for an API on loopback whose token is found automatically.
func tokenFor(ctx context.Context, s *cli.Shell, u *url.URL) (string, error) {
	if token := s.GivenToken(); token != "" {
		return token, nil
	}
	if token, _ := loopback.Find(s.Getenv, u.String()); token != "" {
		return "", nil
	}
	read := readLine
	if s.Interactive() {
		read = func(in io.Reader) ([]byte, error) { return readHidden(s, in) }
		if s.In.Raw != nil {
			restore, err := s.In.Raw()
			if err != nil {
				return "", fmt.Errorf("disable terminal echo: %w", err)
			}
			defer restore() // restore the terminal even if a signal interrupts the input
		}
	}
	line, err := s.ReadInput(ctx, read)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(line))
	if token == "" {
		return "", cli.Hint(bourse.Errorf(bourse.CodeInvalid, "no token given"), "--token, BOURSE_API_TOKEN or standard input")
	}
	return token, nil
}

// maxToken is the maximum length of a token, in bytes.
const maxToken = 64 << 10

func readLine(in io.Reader) ([]byte, error) {
	return bufio.NewReader(io.LimitReader(in, maxToken)).ReadBytes('\n')
}

// readHidden prompts for a token and reads it from the terminal in raw mode, without echo.
func readHidden(s *cli.Shell, in io.Reader) ([]byte, error) {
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, s.Err}, "")
	line, err := t.ReadPassword("Token: ")
	if errors.Is(err, io.EOF) && line == "" { // the user pressed Ctrl-C or Ctrl-D
		return nil, bourse.Errorf(bourse.CodeCanceled, "nothing was stored")
	}
	return []byte(line), err
}
