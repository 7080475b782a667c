package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/conduitio/conduit-commons/opencdc"
	"github.com/conduitio/conduit-commons/schema"
	"github.com/conduitio/conduit-connector-protocol/pconnutils"
	"github.com/conduitio/conduit-connector-protocol/pconnutils/v1/server"
	connutilsv1 "github.com/conduitio/conduit-connector-protocol/proto/connutils/v1"
	"google.golang.org/grpc"
)

const token = "token"

// registry is the schema service that Conduit offers its plugins, behind Conduit's own server of it.
type registry struct {
	lock    sync.Mutex
	schemas map[string][]schema.Schema
}

// serveRegistry serves a registry until the process ends; returns its address.
func serveRegistry() (*registry, string, error) {
	listener, err := net.Listen("tcp", ":0") // as Conduit does, so that the address is [::]:PORT
	if err != nil {
		return nil, "", err
	}
	r := &registry{schemas: make(map[string][]schema.Schema)}
	s := grpc.NewServer()
	connutilsv1.RegisterSchemaServiceServer(s, server.NewSchemaServiceServer(r))
	go s.Serve(listener)
	return r, listener.Addr().String(), nil
}

func (r *registry) CreateSchema(
	ctx context.Context, request pconnutils.CreateSchemaRequest,
) (response pconnutils.CreateSchemaResponse, err error) {
	if given := pconnutils.ConnectorTokenFromContext(ctx); given != token {
		return response, fmt.Errorf("%q: invalid token", given)
	}
	s := schema.Schema{Subject: request.Subject, Type: request.Type, Bytes: request.Bytes}
	if _, err := s.Serde(); err != nil {
		return response, fmt.Errorf("%w: %w", pconnutils.ErrInvalidSchema, err)
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	versions := r.schemas[request.Subject]
	known := slices.IndexFunc(versions, func(v schema.Schema) bool { return string(v.Bytes) == string(request.Bytes) })
	if known < 0 {
		known = len(versions)
		s.Version = known + 1
		r.schemas[request.Subject] = append(versions, s)
	}
	response.Schema = r.schemas[request.Subject][known]
	return response, nil
}

func (r *registry) GetSchema(
	_ context.Context, request pconnutils.GetSchemaRequest,
) (response pconnutils.GetSchemaResponse, err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	versions := r.schemas[request.Subject]
	if request.Version < 1 || request.Version > len(versions) {
		return response, pconnutils.ErrVersionNotFound
	}
	response.Schema = versions[request.Version-1]
	return response, nil
}

// decode decodes a record's key and payload by the schemas that its metadata name, as a destination's middleware does.
func (r *registry) decode(record *opencdc.Record) error {
	m := record.Metadata
	parts := []struct {
		data    []*opencdc.Data
		subject func() (string, error)
		version func() (int, error)
	}{
		{[]*opencdc.Data{&record.Key}, m.GetKeySchemaSubject, m.GetKeySchemaVersion},
		{
			[]*opencdc.Data{&record.Payload.Before, &record.Payload.After},
			m.GetPayloadSchemaSubject, m.GetPayloadSchemaVersion,
		},
	}
	for _, part := range parts {
		for _, data := range part.data {
			raw, ok := (*data).(opencdc.RawData)
			if !ok {
				continue
			}
			subject, err := part.subject()
			if err != nil {
				return err
			}
			version, err := part.version()
			if err != nil {
				return err
			}
			request := pconnutils.GetSchemaRequest{Subject: subject, Version: version}
			response, err := r.GetSchema(context.Background(), request)
			if err != nil {
				return err
			}
			var structured opencdc.StructuredData
			if err := response.Schema.Unmarshal(raw, &structured); err != nil {
				return err
			}
			*data = structured
		}
	}
	return nil
}
