package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/seal"
)

// makeKey creates the key for the cluster's secrets if it does not exist.
func makeKey(data string) error {
	path := admission.Dir(data).SecretsKey()
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // renamed once complete, so that readers never see a part
		if err = os.WriteFile(path+".new", seal.Generate(), 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return fmt.Errorf("create the key for secrets: %w", err)
	}
	return nil
}
