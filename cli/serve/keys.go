package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/seal"
)

// makeKey makes the key of the cluster's secrets, once for a data directory.
func makeKey(data string) error {
	path := admission.Dir(data).SecretsKey()
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // whole, or not at all
		if err = os.WriteFile(path+".new", seal.Generate(), 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return fmt.Errorf("key of secrets: %w", err)
	}
	return nil
}
