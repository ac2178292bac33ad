package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse/seal"
)

// makeKeys returns the files of the keys that open and seal the cluster's
// secrets. They are made once for a data directory.
func makeKeys(data string) (private, public string, err error) {
	private, public = filepath.Join(data, "secrets.key"), filepath.Join(data, "secrets.pub")
	_, errPrivate := os.Stat(private)
	_, errPublic := os.Stat(public)
	if errPrivate == nil && errPublic == nil {
		return private, public, nil
	}
	opens, seals, err := seal.Generate() // also after a death between the two: nothing was sealed yet
	if err == nil {
		err = errors.Join(os.WriteFile(private, opens, 0o600), os.WriteFile(public, seals, 0o600))
	}
	if err != nil {
		return "", "", fmt.Errorf("keys of secrets: %w", err)
	}
	return private, public, nil
}
