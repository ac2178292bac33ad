package serve

import (
	"errors"
	"io/fs"
	"os"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// Credentials names one server's files in a credentials directory. The name of a file
// that does not exist is "".
type Credentials struct {
	Dir string // credentials directory; "" means none

	Files      admission.Files // CA, and certificate with key; either both are set, or neither is
	GossipKey  string
	Tokens     string // only for brokers
	SecretsKey string // only for brokers
	Issuer     string // only for brokers

	problems []error
}

// TLS reports whether the server has a certificate.
func (c *Credentials) TLS() bool { return c.Files != admission.Files{} }

// find looks for the files of the server with this name and role. It records problems with
// the files, which serverProblems reports.
func (c *Credentials) find(name bourse.WorkerID, role bourse.Role) {
	if c.Dir == "" {
		return
	}
	dir := admission.Dir(c.Dir)
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		c.problems = append(c.problems, bourse.Errorf(bourse.CodeInvalid, "--credentials %s: %w", c.Dir, errors.Join(err, notDir(info))))
		return
	}
	c.GossipKey = c.existing(dir.GossipKey())
	if ca := c.existing(dir.CA()); ca != "" {
		c.Files = admission.Files{CA: ca, Pair: dir.Server(name)}
		if c.existing(c.Files.Pair) == "" {
			c.problems = append(c.problems, bourse.Errorf(bourse.CodeInvalid, "--credentials %s has no certificate for this server's --name: %s is missing", c.Dir, c.Files.Pair))
		}
	}
	if role == bourse.RoleBroker {
		c.Tokens, c.SecretsKey, c.Issuer = c.existing(dir.Tokens()), c.existing(dir.SecretsKey()), c.existing(dir.Issuer())
	}
}

func notDir(info fs.FileInfo) error {
	if info == nil {
		return nil
	}
	return errors.New("not a directory")
}

// existing returns path, or "" if the file does not exist.
func (c *Credentials) existing(path string) string {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil { // the file may exist, so the server must not start without it
		c.problems = append(c.problems, bourse.Errorf(bourse.CodeInvalid, "--credentials: %w", err))
	}
	return path
}
