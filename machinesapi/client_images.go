package machinesapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/bourse-dev/bourse"
)

// Images lists the images of the workers that are meant, and the workers that
// did not answer. Codes: not_found (the worker).
func (c *Client) Images(ctx context.Context, of ImageTarget) ([]WorkerImage, []bourse.WorkerID, error) {
	query := url.Values{}
	if of.Region != "" {
		query.Set("region", string(of.Region))
	}
	if of.Worker != "" {
		query.Set("worker", string(of.Worker))
	}
	var out ImageList
	reply, err := c.do(ctx, call{method: http.MethodGet, path: path("images"), query: query, out: &out})
	if err != nil {
		return nil, nil, err
	}
	return out.Images, silentOf(reply), nil
}

// AppImages are the images that one app may use, as a client reaches them.
type AppImages struct {
	Client *Client
	App    bourse.AppName
}

// AppImages returns the client's way to an app's images.
func (c *Client) AppImages(app bourse.AppName) AppImages { return AppImages{c, app} }

// Resolve returns which image a name means now, as its registry says to the app's
// organisation; "host" and "pull" mean themselves. Codes: invalid, not_found (the
// app, the image), unavailable (no worker reaches the registry).
func (i AppImages) Resolve(ctx context.Context, image string) (bourse.ImageRef, error) {
	var out bourse.ImageRef
	_, err := i.Client.do(ctx, call{method: http.MethodGet, path: path("apps", string(i.App), "images", "resolve"), query: url.Values{"image": {image}}, out: &out})
	return out, err
}

// PruneImages removes the images that no machine uses from the workers that
// are meant, and returns them and the workers that did not answer. Codes:
// not_found (the worker).
func (c *Client) PruneImages(ctx context.Context, of ImageTarget) ([]WorkerImage, []bourse.WorkerID, error) {
	var out ImageList
	reply, err := c.do(ctx, call{method: http.MethodPost, path: path("images", "prune"), in: of, out: &out})
	if err != nil {
		return nil, nil, err
	}
	return out.Images, silentOf(reply), nil
}

// PullImage has the workers that are meant pull an image, before a machine
// needs it, and calls line from the calling goroutine for each news of them,
// until all have ended; a worker's own failure is in its last line. An error of
// line ends the asking, not the pulls, and is returned. Codes: invalid,
// not_found (the worker), and unavailable when the stream breaks off.
func (c *Client) PullImage(ctx context.Context, in PullImage, line func(PullLine) error) error {
	k := call{method: http.MethodPost, path: path("images", "pull"), in: in}
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		return replyError(resp)
	}
	k.reads = true // a pull may be asked for again
	lines := json.NewDecoder(resp.Body)
	for {
		var l PullLine
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.lost(ctx, k, fmt.Errorf("read the progress: %w", err))
		}
		if err := line(l); err != nil {
			return err
		}
	}
}
