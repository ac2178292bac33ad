package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Metadata returns all of a machine's metadata. Codes: not_found.
func (c *Client) Metadata(ctx context.Context, app bourse.AppName, id bourse.MachineID) (map[string]string, error) {
	var out map[string]string
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "metadata"), out: &out})
	return out, err
}

// PatchMetadata changes several keys at once, without a new version. Codes:
// invalid, not_found, failed_precondition (in.Version is not the machine's).
func (c *Client) PatchMetadata(ctx context.Context, app bourse.AppName, id bourse.MachineID, in MetadataPatch) error {
	_, err := c.do(ctx, call{method: http.MethodPatch, path: machinePath(app, id, "metadata"), in: in})
	return err
}

// MetadataValue returns one key's value. Codes: not_found (machine, or key).
func (c *Client) MetadataValue(ctx context.Context, app bourse.AppName, id bourse.MachineID, key string) (string, error) {
	var out MetadataValue
	_, err := c.do(ctx, call{method: http.MethodGet, path: machinePath(app, id, "metadata", key), out: &out})
	return out.Value, err
}

// SetMetadata sets one key. Codes: invalid, not_found.
func (c *Client) SetMetadata(ctx context.Context, app bourse.AppName, id bourse.MachineID, key, value string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: machinePath(app, id, "metadata", key), in: MetadataValue{Value: value}})
	return err
}

// DeleteMetadata removes one key; one that is not there is no error. Codes:
// not_found (the machine).
func (c *Client) DeleteMetadata(ctx context.Context, app bourse.AppName, id bourse.MachineID, key string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: machinePath(app, id, "metadata", key)})
	return err
}
