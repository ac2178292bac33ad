package logs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Files provides access to all machines' logs in one directory, which must exist. All machine ids passed to
// its methods must be valid, because they are used as file names.
type Files struct{ Dir string }

func (f Files) dir(id bourse.MachineID) string { return filepath.Join(f.Dir, string(id)) }

func (f Files) path(id bourse.MachineID, n int) string {
	return filepath.Join(f.dir(id), strconv.Itoa(n))
}

// numbers returns the numbers of a machine's log files, oldest first. The list is empty if the machine has no
// directory.
func (f Files) numbers(id bourse.MachineID) ([]int, error) {
	entries, err := os.ReadDir(f.dir(id))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Machines returns the machines that have a log.
func (f Files) Machines() ([]bourse.MachineID, error) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return nil, err
	}
	var out []bourse.MachineID
	for _, e := range entries {
		if id := bourse.MachineID(e.Name()); id.Validate() == nil {
			out = append(out, id)
		}
	}
	return out, nil
}

// Read calls line with each existing line of a machine's log that want selects. An unknown machine has no lines.
func (f Files) Read(id bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	r, err := f.open(id, want)
	if err != nil {
		return err
	}
	defer r.close()
	return r.read(line)
}

// Remove removes a machine's log. If a [Log] exists for the machine, call Log.Destroy first.
func (f Files) Remove(id bourse.MachineID) error { return os.RemoveAll(f.dir(id)) }
