package network

import "github.com/bourse-dev/bourse"

// unavailable wraps what the host cannot do, or cannot do now.
func unavailable(doing string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "network: %s: %w", doing, err)
}
