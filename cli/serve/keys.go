package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse/internal/seal"
)

// makeKey returns the file of the key of the cluster's secrets. It is made once for
// a data directory.
func makeKey(data string) (string, error) {
	path := filepath.Join(data, "secrets.key")
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // whole, or not at all
		if err = os.WriteFile(path+".new", seal.Generate(), 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("key of secrets: %w", err)
	}
	return path, nil
}
