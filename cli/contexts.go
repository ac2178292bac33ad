package cli

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// DevContext is the context of the cluster that "bourse dev" runs on this host. It is
// not in the file of contexts: its address and token are found where the cluster
// stores them.
const DevContext = "dev"

// Context is a cluster, and what its API has to be shown.
type Context struct {
	API   string `toml:"api" json:"api"`                   // the URL
	CA    string `toml:"ca,omitempty" json:"ca,omitempty"` // certificates in PEM to trust instead of the host's
	Token string `toml:"token,omitempty" json:"-"`
}

// Contexts are the clusters that this user has logged in to.
type Contexts struct {
	Current string             `toml:"current,omitempty"` // "": none
	ByName  map[string]Context `toml:"context,omitempty"`

	path string
}

// contextsFile returns the path of the user's file of contexts, "" when the
// environment names no directory for it.
func contextsFile(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if home := getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config")
	}
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "bourse", "contexts.toml")
}

// LoadContexts reads the user's contexts. CodeInvalid: the file cannot be read, or
// other users can read or write it.
func LoadContexts(getenv func(string) string) (*Contexts, error) {
	c := &Contexts{ByName: map[string]Context{}, path: contextsFile(getenv)}
	if c.path == "" {
		return c, nil
	}
	text, err := loopback.ReadFile(c.path, maxContexts)
	switch {
	case bourse.CodeOf(err) == bourse.CodeNotFound:
		return c, nil
	case err != nil:
		return nil, Hint(err, "chmod 600 "+c.path+", if it is yours")
	}
	if err := decodeContexts(text, c); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s: %w", c.path, err)
	}
	return c, nil
}

// maxContexts bounds the file of contexts, in bytes.
const maxContexts = 4 << 20

// UpdateContexts reads the user's contexts, lets change change them, and stores them.
// Another command that does so at the same time waits.
func UpdateContexts(getenv func(string) string, change func(*Contexts) error) (*Contexts, error) {
	path := contextsFile(getenv)
	if path == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "there is no place for contexts: set HOME or XDG_CONFIG_HOME")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "store the contexts: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		defer lock.Close() // which unlocks it
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "lock the contexts: %w", err)
	}
	all, err := LoadContexts(getenv)
	if err != nil {
		return nil, err
	}
	if err := change(all); err != nil {
		return nil, err
	}
	return all, all.save()
}

// decodeContexts reads a file of contexts into c.
func decodeContexts(text []byte, c *Contexts) error {
	if err := toml.Unmarshal(text, c); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			return fmt.Errorf("line %d, column %d: %w", row, column, err)
		}
		return err
	}
	for name, one := range c.ByName {
		if err := CheckContextName(name); err != nil {
			return err
		}
		if one.API == "" {
			return fmt.Errorf("context %s has no api", name)
		}
	}
	if _, ok := c.ByName[c.Current]; !ok && c.Current != DevContext {
		c.Current = ""
	}
	return nil
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckContextName reports whether a context may have a name. CodeInvalid.
func CheckContextName(name string) error {
	switch {
	case !contextName.MatchString(name):
		return bourse.Errorf(bourse.CodeInvalid, "%s is not a context's name: use up to 63 letters, digits, dots, dashes and underscores", bourse.Quoted(name))
	case name == DevContext:
		return bourse.Errorf(bourse.CodeInvalid, "context %s is always the cluster of \"bourse dev\": choose another name", name)
	}
	return nil
}

// save writes the contexts where they were read from, readable by this user alone.
func (c *Contexts) save() error {
	path, err := filepath.EvalSymlinks(c.path) // tokens must not stay behind a link
	if errors.Is(err, fs.ErrNotExist) {
		path, err = c.path, nil
	}
	var text []byte
	if err == nil {
		text, err = toml.Marshal(c)
	}
	if err == nil {
		err = writePrivate(path, text)
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "store the contexts: %w", err)
	}
	return nil
}

// writePrivate replaces a file as a whole, readable by this user alone.
func writePrivate(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".contexts-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it was renamed
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Names returns the names of all contexts in order, [DevContext] included.
func (c *Contexts) Names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(c.ByName)), DevContext)))
}

// Find returns the context of a name. CodeNotFound.
func (c *Contexts) Find(getenv func(string) string, name string) (Context, error) {
	if name == DevContext {
		return devContext(getenv), nil
	}
	one, ok := c.ByName[name]
	if !ok {
		return one, Hint(bourse.Errorf(bourse.CodeNotFound, "there is no context %s", bourse.Quoted(name)), "bourse context list")
	}
	return one, nil
}

// devContext is the cluster of "bourse dev" that was started last, or else the one
// that would be found at the usual address.
func devContext(getenv func(string) string) Context {
	api := loopback.Dev(getenv)
	if api == (netip.AddrPort{}) {
		return Context{API: "http://" + DefaultAPI}
	}
	return Context{API: "http://" + api.String()}
}

// target is the API that a command uses.
type target struct {
	Context
	named     bool              // a context chose it: the environment's CA and token may be another cluster's
	transport http.RoundTripper // nil: the usual one
	err       error             // why the API cannot even be asked; nil if it can
}

// target returns the API that the flags, the environment or the current context
// choose, in this order. The CA and token of the environment belong to BOURSE_API, or
// to the API of --api or the default one; a context's only come from itself or flags. It
// is safe for concurrent use.
func (s *Shell) target() *target {
	s.once.Do(func() { s.use(s.choose()) })
	return &s.chosen
}

// UseAPI has the command ask an API other than the one that would be chosen. Call it
// before the first use of the API.
func (s *Shell) UseAPI(c Context) { s.once.Do(func() { s.use(target{Context: c, named: true}) }) }

// use makes the transport of an API: with a CA of its own, one that trusts this CA
// alone. An API that cannot be used fails the requests, but not the commands that make
// none.
func (s *Shell) use(t target) {
	if t.err == nil && (s.ca != "" || !t.named) {
		t.CA, t.err = s.GivenCA()
	}
	switch {
	case t.err != nil:
		t.transport = noTransport{t.err}
	case t.CA != "":
		t.transport = trustOnly(t.CA)
	}
	if s.Transport != nil {
		t.transport = s.Transport
	}
	s.chosen = t
}

func (s *Shell) choose() target {
	switch {
	case s.api != "" && s.context != "":
		return target{err: bourse.Errorf(bourse.CodeInvalid, "--api and --context are mutually exclusive")}
	case s.api != "":
		return target{Context: Context{API: s.api}}
	case s.context != "":
		return s.inContext(s.context)
	case s.Getenv("BOURSE_API") != "":
		return target{Context: Context{API: s.Getenv("BOURSE_API")}}
	case s.Getenv("BOURSE_CONTEXT") != "":
		return s.inContext(s.Getenv("BOURSE_CONTEXT"))
	}
	return s.inContext("")
}

// inContext returns the API of a context, "" for the current one.
func (s *Shell) inContext(name string) target {
	all, err := LoadContexts(s.Getenv)
	if err != nil {
		return target{err: err}
	}
	name = cmp.Or(name, all.Current)
	if name == "" {
		return target{Context: Context{API: "http://" + DefaultAPI}}
	}
	one, err := all.Find(s.Getenv, name)
	return target{Context: one, named: true, err: err}
}

// GivenCA returns the certificates of the file that --ca or BOURSE_CA names, "" when
// neither does. CodeInvalid: the file cannot be read.
func (s *Shell) GivenCA() (string, error) {
	file := cmp.Or(s.ca, s.Getenv("BOURSE_CA"))
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "--ca: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return "", bourse.Errorf(bourse.CodeInvalid, "--ca: %s has no certificate in PEM", file)
	}
	return string(text), nil
}

// GivenToken returns the token of --token or BOURSE_API_TOKEN, "" without either.
func (s *Shell) GivenToken() string { return cmp.Or(s.token, s.Getenv("BOURSE_API_TOKEN")) }
