package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// makeKey creates the key for the cluster's secrets if it does not exist.
func makeKey(data string) error {
	path := admission.Dir(data).SecretsKey()
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = wholefile.Write(path, seal.Generate(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("create the key for secrets: %w", err)
	}
	return nil
}
