package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// MachineMetadata is the metadata of one machine, as a client reaches it.
type MachineMetadata struct {
	Client  *Client
	App     bourse.AppName
	Machine bourse.MachineID
}

// Metadata returns the client's way to a machine's metadata.
func (c *Client) Metadata(app bourse.AppName, id bourse.MachineID) MachineMetadata {
	return MachineMetadata{c, app, id}
}

// All returns all of a machine's metadata. Codes: not_found.
func (m MachineMetadata) All(ctx context.Context) (map[string]string, error) {
	var out map[string]string
	_, err := m.Client.do(ctx, call{method: http.MethodGet, path: machinePath(m.App, m.Machine, "metadata"), out: &out})
	return out, err
}

// Patch changes several keys at once, without a new version. Codes:
// invalid, not_found, failed_precondition (in.Version is not the machine's).
func (m MachineMetadata) Patch(ctx context.Context, in MetadataPatch) error {
	_, err := m.Client.do(ctx, call{method: http.MethodPatch, path: machinePath(m.App, m.Machine, "metadata"), in: in})
	return err
}

// Get returns one key's value. Codes: not_found (machine, or key).
func (m MachineMetadata) Get(ctx context.Context, key string) (string, error) {
	var out MetadataValue
	_, err := m.Client.do(ctx, call{method: http.MethodGet, path: machinePath(m.App, m.Machine, "metadata", key), out: &out})
	return out.Value, err
}

// Set sets one key. Codes: invalid, not_found.
func (m MachineMetadata) Set(ctx context.Context, key, value string) error {
	_, err := m.Client.do(ctx, call{method: http.MethodPost, path: machinePath(m.App, m.Machine, "metadata", key), in: MetadataValue{Value: value}})
	return err
}

// Delete removes one key; one that is not there is no error. Codes:
// not_found (the machine).
func (m MachineMetadata) Delete(ctx context.Context, key string) error {
	_, err := m.Client.do(ctx, call{method: http.MethodDelete, path: machinePath(m.App, m.Machine, "metadata", key)})
	return err
}
