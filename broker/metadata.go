package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Metadata changes without a new version, and whoever holds the machine's
// lease.

func (b *Broker) getMetadata(w http.ResponseWriter, r *request) error {
	_, m, err := b.machineOf(r)
	if err != nil {
		return err
	}
	out := m.Config.Metadata
	if out == nil {
		out = map[string]string{}
	}
	return writeJSON(w, http.StatusOK, out)
}

func (b *Broker) getMetadataKey(w http.ResponseWriter, r *request) error {
	_, m, err := b.machineOf(r)
	if err != nil {
		return err
	}
	value, ok := m.Config.Metadata[r.PathValue("key")]
	if !ok {
		return bourse.Errorf(bourse.CodeNotFound, "metadata key %s not found", bourse.Quoted(r.PathValue("key")))
	}
	return writeJSON(w, http.StatusOK, machinesapi.MetadataValue{Value: value})
}

// patchMetadata serves PUT too: both leave the keys that they do not name.
func (b *Broker) patchMetadata(w http.ResponseWriter, r *request) error {
	var in machinesapi.MetadataPatch
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Metadata == nil {
		return bourse.Errorf(bourse.CodeInvalid, "invalid metadata: it is required")
	}
	return b.changeMetadata(w, r, fabric.MetadataRequest{Set: in.Metadata, Instance: in.Version})
}

func (b *Broker) setMetadataKey(w http.ResponseWriter, r *request) error {
	var in machinesapi.MetadataValue
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	return b.changeMetadata(w, r, fabric.MetadataRequest{Set: map[string]*string{r.PathValue("key"): &in.Value}})
}

func (b *Broker) deleteMetadataKey(w http.ResponseWriter, r *request) error {
	return b.changeMetadata(w, r, fabric.MetadataRequest{Set: map[string]*string{r.PathValue("key"): nil}})
}

// bounds of metadata, as of the rest of a config.
const (
	maxMetadataKeys   = 1024
	maxMetadataString = 1 << 17
)

func (b *Broker) changeMetadata(w http.ResponseWriter, r *request, change fabric.MetadataRequest) error {
	if err := checkMetadata(change.Set); err != nil {
		return err
	}
	to, err := b.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	m, err := b.Workers.Metadata(ctx, to.worker, to.id, change)
	if err != nil {
		return workerError(r.Context(), to.worker.ID, changing, err)
	}
	b.fresh.note(&m)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func checkMetadata(set map[string]*string) error {
	if len(set) > maxMetadataKeys {
		return bourse.Errorf(bourse.CodeInvalid, "invalid metadata: %d keys, at most %d", len(set), maxMetadataKeys)
	}
	for key, value := range set {
		if key == "" || len(key) > maxMetadataString || (value != nil && len(*value) > maxMetadataString) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid metadata %s: use 1 to %d bytes for a key, up to as many for a value",
				bourse.Quoted(key), maxMetadataString)
		}
	}
	return nil
}
