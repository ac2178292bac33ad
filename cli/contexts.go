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
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// DevContext is the context of the cluster that "bourse dev" runs on this host. It is
// not stored in the contexts file: its address and token are read from files that the
// cluster writes.
const DevContext = "dev"

// Context describes how to access a cluster.
type Context struct {
	API   string `toml:"api" json:"api"`                   // URL of the API
	CA    string `toml:"ca,omitempty" json:"ca,omitempty"` // certificates to trust instead of the host's, in PEM
	Token string `toml:"token,omitempty" json:"-"`
}

// Contexts are the clusters that this user has logged in to.
type Contexts struct {
	Current string             `toml:"current,omitempty"` // name of the current context; "" if there is none
	ByName  map[string]Context `toml:"context,omitempty"`

	path string
}

// contextsFile returns the path of the user's contexts file. It returns "" if neither
// XDG_CONFIG_HOME nor HOME is set.
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

// LoadContexts reads the user's contexts. Errors: invalid if the file is malformed or
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

// maxContexts limits the size of the contexts file, in bytes.
const maxContexts = 4 << 20

// UpdateContexts reads the user's contexts, calls change to modify them, and stores the result. A
// file lock prevents concurrent updates by other processes.
func UpdateContexts(getenv func(string) string, change func(*Contexts) error) (*Contexts, error) {
	path := contextsFile(getenv)
	if path == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "no directory to store contexts in: set HOME or XDG_CONFIG_HOME")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "store the contexts: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		defer lock.Close() // closing the file also releases the lock
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

// decodeContexts parses a contexts file into c.
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

// CheckContextName returns CodeInvalid if name is not a valid context name.
func CheckContextName(name string) error {
	switch {
	case !contextName.MatchString(name):
		return bourse.Errorf(bourse.CodeInvalid, "invalid context name %s: use up to 63 letters, digits, dots, dashes and underscores", bourse.Quoted(name))
	case name == DevContext:
		return bourse.Errorf(bourse.CodeInvalid, "context %s is reserved for the cluster of \"bourse dev\": choose another name", name)
	}
	return nil
}

// save writes the contexts back to their file, which only this user can read.
func (c *Contexts) save() error {
	path, err := filepath.EvalSymlinks(c.path) // if the file is a symbolic link, replace its target: old tokens must not remain there
	if errors.Is(err, fs.ErrNotExist) {
		path, err = c.path, nil
	}
	var text []byte
	if err == nil {
		text, err = toml.Marshal(c)
	}
	if err == nil {
		err = wholefile.Write(path, text, 0o600)
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "store the contexts: %w", err)
	}
	return nil
}

// Names returns the sorted names of all contexts, including [DevContext].
func (c *Contexts) Names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(c.ByName)), DevContext)))
}

// Find returns the context with the given name. Errors: not_found.
func (c *Contexts) Find(getenv func(string) string, name string) (Context, error) {
	if name == DevContext {
		return devContext(getenv), nil
	}
	one, ok := c.ByName[name]
	if !ok {
		return one, Hint(bourse.Errorf(bourse.CodeNotFound, "context %s not found", bourse.Quoted(name)), "bourse context list")
	}
	return one, nil
}

// devContext returns the context of the most recently started "bourse dev" cluster. If no
// such cluster is known, the context uses the default API address.
func devContext(getenv func(string) string) Context {
	api := loopback.Dev(getenv)
	if api == (netip.AddrPort{}) {
		return Context{API: "http://" + DefaultAPI}
	}
	return Context{API: "http://" + api.String()}
}

// target describes the API that a command uses.
type target struct {
	Context
	name        string            // name of the context; "" if the API was not chosen through one
	fromContext bool              // chosen through a context, so the CA and token in the environment may belong to another cluster
	transport   http.RoundTripper // nil means the default transport
	err         error             // reason why no request can be sent, or nil
}

// target returns the API chosen by the flags, the environment or the current context, in this order
// of precedence. If the API was chosen through a context, the CA and token come from flags or from
// that context. Otherwise they come from flags or from the environment. target is safe for
// concurrent use.
func (s *Shell) target() *target {
	s.once.Do(func() { s.use(s.choose()) })
	return &s.chosen
}

// TrustAlso makes the command also trust the given CA, in PEM. It has no effect if the command
// trusts the host's CAs. It must be called before the API is first used.
func (s *Shell) TrustAlso(ca string) { s.alsoTrusted = "\n" + ca }

// ChangeCA replaces the CA, in PEM, in the context that the API was chosen through. It returns
// false without changing anything if the API was not chosen through a context, if the context has
// no CA, or if --ca is set.
func (s *Shell) ChangeCA(change func(old string) string) (changed bool, err error) {
	t := s.target()
	if t.name == "" || s.ca != "" {
		return false, nil
	}
	_, err = UpdateContexts(s.Getenv, func(all *Contexts) error {
		one := all.ByName[t.name]
		if changed = one.CA != ""; changed {
			one.CA = change(one.CA)
			all.ByName[t.name] = one
		}
		return nil
	})
	return changed, err
}

// UseAPI makes the command use the given API, regardless of flags and environment. It
// must be called before the API is first used.
func (s *Shell) UseAPI(c Context) { s.once.Do(func() { s.use(target{Context: c, fromContext: true}) }) }

// use sets the target and its transport. If a CA is configured, the transport trusts only that CA
// and the one passed to TrustAlso. If the target is unusable, the transport fails every request, so
// that commands that send no requests still work.
func (s *Shell) use(t target) {
	if t.err == nil && (s.ca != "" || !t.fromContext) {
		t.CA, t.err = s.GivenCA()
	}
	switch {
	case t.err != nil:
		t.transport = failingTransport{t.err}
	case t.CA != "":
		t.transport = trustOnly(t.CA + s.alsoTrusted)
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

// inContext returns the API of the context with the given name, or of the current context if name
// is "". If there is no current context, it returns the default API.
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
	return target{Context: one, name: name, fromContext: true, err: err}
}

// GivenCA returns the contents of the file that --ca or BOURSE_CA names, or "" if
// neither is set. Errors: invalid if the file cannot be read or contains no
// certificate.
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
		return "", bourse.Errorf(bourse.CodeInvalid, "--ca: %s contains no PEM certificate", file)
	}
	return string(text), nil
}

// GivenToken returns the token from --token or BOURSE_API_TOKEN, or "" if neither is
// set.
func (s *Shell) GivenToken() string { return cmp.Or(s.token, s.Getenv("BOURSE_API_TOKEN")) }
