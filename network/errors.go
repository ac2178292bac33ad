package network

import "github.com/bourse-dev/bourse"

// unavailable wraps an error of the host with CodeUnavailable and the operation that failed.
func unavailable(doing string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "network: %s: %w", doing, err)
}
