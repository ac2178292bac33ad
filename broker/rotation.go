package broker

import (
	"log/slog"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
)

// rotationHandler serves the endpoint that replaces shared keys.
type rotationHandler struct{ *Config }

func (h *rotationHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/keys/{key}/rotation", endpoint.Cluster, h.rotate).Reads(machinesapi.Rotate{}).Writes(machinesapi.Rotation{}),
	}
}

func (h *rotationHandler) rotate(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.Rotate
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	key := machinesapi.SharedKey(r.PathValue("key"))
	if key != machinesapi.KeyGossip && key != machinesapi.KeySecrets && key != machinesapi.KeyCA {
		return bourse.Errorf(bourse.CodeNotFound, "there is no shared key %s: use %s, %s or %s", bourse.Quoted(string(key)), machinesapi.KeyGossip, machinesapi.KeySecrets, machinesapi.KeyCA)
	}
	if h.Rotate == nil {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "this cluster has no certificates, so its servers cannot exchange keys")
	}
	out, err := h.Rotate(r.Context(), key, in)
	if err != nil {
		return err
	}
	r.Note(slog.String("key", string(key)), slog.String("step", string(out.Step)), slog.Bool("done", out.Done))
	return endpoint.WriteJSON(w, http.StatusOK, out)
}
