package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Changing a machine's metadata does not create a new version of the machine. It is permitted even
// if another caller holds the machine's lease.

func (h *machineHandler) getMetadata(w http.ResponseWriter, r *endpoint.Request) error {
	_, m, err := h.machineOf(r)
	if err != nil {
		return err
	}
	out := m.Config.Metadata
	if out == nil {
		out = map[string]string{}
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

func (h *machineHandler) getMetadataKey(w http.ResponseWriter, r *endpoint.Request) error {
	_, m, err := h.machineOf(r)
	if err != nil {
		return err
	}
	value, ok := m.Config.Metadata[r.PathValue("key")]
	if !ok {
		return bourse.Errorf(bourse.CodeNotFound, "metadata key %s not found", bourse.Quoted(r.PathValue("key")))
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.MetadataValue{Value: value})
}

// patchMetadata serves PATCH and PUT. Both leave keys that are not in the request unchanged.
func (h *machineHandler) patchMetadata(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.MetadataPatch
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Metadata == nil {
		return bourse.Errorf(bourse.CodeInvalid, "metadata is required")
	}
	return h.changeMetadata(w, r, fabric.MetadataRequest{Set: in.Metadata, Instance: in.Version})
}

func (h *machineHandler) setMetadataKey(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.MetadataValue
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	return h.changeMetadata(w, r, fabric.MetadataRequest{Set: map[string]*string{r.PathValue("key"): &in.Value}})
}

func (h *machineHandler) deleteMetadataKey(w http.ResponseWriter, r *endpoint.Request) error {
	return h.changeMetadata(w, r, fabric.MetadataRequest{Set: map[string]*string{r.PathValue("key"): nil}})
}

// Limits for metadata. The same limits apply to the metadata in configs.
const (
	maxMetadataKeys   = 1024
	maxMetadataString = 1 << 17
)

func (h *machineHandler) changeMetadata(w http.ResponseWriter, r *endpoint.Request, change fabric.MetadataRequest) error {
	if err := checkMetadata(change.Set); err != nil {
		return err
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	change.Machine = to.id
	m, err := fabric.MachineMetadata.Call(ctx, h.Workers, to.worker, change)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	h.machines.RememberReply(&m)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func checkMetadata(set map[string]*string) error {
	if len(set) > maxMetadataKeys {
		return bourse.Errorf(bourse.CodeInvalid, "invalid metadata: %d keys exceed the limit of %d", len(set), maxMetadataKeys)
	}
	for key, value := range set {
		if key == "" || len(key) > maxMetadataString || (value != nil && len(*value) > maxMetadataString) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid metadata %s: a key must have 1 to %d bytes, and a value at most %d",
				bourse.Quoted(key), maxMetadataString, maxMetadataString)
		}
	}
	return nil
}
