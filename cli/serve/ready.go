package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

// Ready is what a server reports once it serves: one line of JSON on standard
// output, and the content of its --ready-file.
type Ready struct {
	ID     string        `json:"id"`
	Role   bourse.Role   `json:"role"`
	Region bourse.Region `json:"region,omitempty"`
	API    string        `json:"api"`            // host:port
	Gossip string        `json:"gossip"`         // host:port
	Pull   string        `json:"pull,omitempty"` // host:port of a worker's gateway
	HTTP   []string      `json:"http,omitempty"` // host:port at which a proxy serves HTTP, HTTPS and streams
	HTTPS  []string      `json:"https,omitempty"`
	TCP    []string      `json:"tcp,omitempty"`
	PID    int           `json:"pid"`

	Members int `json:"members,omitzero"` // of its cluster that it knows, itself included: one that is alone is in no cluster yet

	TokenFile string `json:"token_file,omitempty"` // with the token of a broker's clients, or a gateway's, that it made for itself
}

// Announce reports that the server is ready: on w, in the ready file if one
// was asked for, and to systemd if that asks. The file appears whole or not at
// all; withdraw removes it.
func (c *ServerConfig) Announce(w io.Writer, r Ready) (withdraw func(), err error) {
	withdraw = func() {}
	line, err := json.Marshal(r)
	if err != nil {
		return withdraw, err
	}
	line = append(line, '\n')
	if c.ReadyFile != "" {
		if err := WriteWhole(c.ReadyFile, line); err != nil {
			return withdraw, bourse.Errorf(bourse.CodeInvalid, "--ready-file: %w", err)
		}
		withdraw = func() { _ = os.Remove(c.ReadyFile) } // one that is gone already is no harm
	}
	// The reader may have left: that is no reason to end.
	_, _ = w.Write(line)
	if err := notifySystemd(); err != nil {
		withdraw()
		return func() {}, err
	}
	return withdraw, nil
}

// WriteWhole writes a file that readers see whole or not at all. It is not
// synced: its content is void after a crash of the host anyway.
func WriteWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}
