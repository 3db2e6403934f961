package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hdmlp/hdmlp/internal/daemon/protocol"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/catalog"
	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/report"
	"github.com/hdmlp/hdmlp/internal/source"
)

// call answers a CALL in a task of its own.
func (x *conn) call(ctx context.Context, p []byte, in *inbox) error {
	var m protocol.CallMessage
	if err := protocol.DecodeJSON(p, &m); err != nil {
		return err
	}
	m.Params = append(json.RawMessage(nil), m.Params...)
	with, err := x.broughtBy(m, in)
	if err != nil {
		return err
	}
	select {
	case x.callSlots <- struct{}{}:
	default:
		with.close()
		return fmt.Errorf("%w: more than %d calls are pending", protocol.ErrProtocol, maxCalls)
	}
	x.tasks.Go(func() {
		reply := protocol.ReplyMessage{ID: m.ID}
		result, err := x.answer(ctx, m, with)
		with.close() // its users have duplicated the descriptors
		if err != nil && ctx.Err() != nil {
			<-x.callSlots
			return // no reply: the process sees the connection end
		}
		if err != nil {
			reply.Error = errorMessage(err)
		} else {
			reply.Result = result
		}
		<-x.callSlots
		if err := x.sendJSON(protocol.Reply, reply); errors.Is(err, protocol.ErrProtocol) {
			reply.Result, reply.Error = nil, tooLong("the answer to "+m.Method, err)
			_ = x.sendJSON(protocol.Reply, reply)
		}
		if m.Method == "shutdown" && reply.Error == nil {
			x.d.stop()
		}
	})
	return nil
}

// brought is what comes with a call about a dataset in descriptors.
type brought struct {
	view     *source.View // nil: none
	manifest *os.File     // nil: none
	into     *os.File     // memory to write to; nil: none
}

func (b brought) close() {
	_ = b.view.Close()
	_ = b.manifest.Close()
	_ = b.into.Close()
}

// broughtBy returns the descriptors that come with a call.
func (x *conn) broughtBy(m protocol.CallMessage, in *inbox) (b brought, err error) {
	switch m.Method {
	case "dataset", "samples", "entries", "read":
	default:
		return b, nil
	}
	// Other errors in the parameters are reported by the answer. Here the descriptors must be
	// closed, so that they are not taken for the next call's.
	var p struct {
		Path     string `json:"path"`
		View     bool   `json:"view"`
		Manifest bool   `json:"manifest"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		in.close()
		return b, nil
	}
	if p.View {
		if b.view, err = in.view(option.IsURL(p.Path)); err != nil {
			return b, err
		}
	}
	if p.Manifest {
		b.manifest, err = in.file()
	}
	if m.Method == "read" && err == nil {
		b.into, err = in.file()
	}
	if err != nil {
		b.close()
	}
	return b, err
}

// tooLong is the error for an answer that does not fit into a frame.
func tooLong(what string, err error) *protocol.ErrorMessage {
	return &protocol.ErrorMessage{
		Kind:    protocol.KindLimit,
		Message: fmt.Sprintf("%s is too long: %v; request less at a time", what, err),
		Details: map[string]any{"limit": protocol.MaxPayload},
	}
}

// maxSamples is the most samples that one call lists.
const maxSamples = 10_000

// answer returns the result of a call.
func (x *conn) answer(ctx context.Context, m protocol.CallMessage,
	with brought,
) (any, error) {
	if x.versionErr != nil && m.Method != "stats" && m.Method != "shutdown" {
		return nil, x.versionErr
	}
	switch m.Method {
	case "explain", "report", "audit", "unusable":
		rank := x.rank.Load()
		if rank == nil {
			return nil, &protocol.ErrorMessage{
				Kind:    protocol.KindProtocol,
				Message: m.Method + " before a job is open",
			}
		}
		return answerRank(ctx, rank, m)
	case "check":
		return x.check(m)
	case "dataset":
		return x.describeDataset(ctx, m, with)
	case "samples":
		return x.listSamples(ctx, m, with)
	case "entries":
		return x.listRecords(ctx, m, with)
	case "read":
		return x.readSample(ctx, m, with)
	case "stats":
		x.queried.Store(true)
		return x.d.stats(), nil
	case "cluster":
		x.queried.Store(true)
		p, err := params[struct {
			Job string `json:"job"`
		}](m)
		if err != nil {
			return nil, err
		}
		jobs, err := x.d.cfg.Node.ClusterReports(ctx, p.Job)
		return ClusterStats{jobs}, err
	case "shutdown":
		p, err := params[struct {
			Force bool `json:"force"`
		}](m)
		if err != nil {
			return nil, err
		}
		if !p.Force {
			if why := x.d.whyBusy(x); why != "" {
				return nil, &protocol.ErrorMessage{Kind: protocol.KindBusy, Message: why}
			}
		}
		return map[string]any{}, nil // call stops the daemon once this is sent
	}
	return nil, &protocol.ErrorMessage{
		Kind:    protocol.KindProtocol,
		Message: fmt.Sprintf("unknown method %q", m.Method),
	}
}

// answerRank returns the result of a call about the process's own job.
func answerRank(ctx context.Context, rank *node.Rank, m protocol.CallMessage) (any, error) {
	switch m.Method {
	case "explain":
		p, err := params[struct {
			Epoch int  `json:"epoch"`
			Step  int  `json:"step"`
			Rank  *int `json:"rank"`
		}](m)
		if err != nil {
			return nil, err
		}
		of := -1 // its own
		if p.Rank != nil {
			of = *p.Rank
		}
		return rank.Explain(p.Epoch, p.Step, of)
	case "audit":
		p, err := params[struct {
			Epoch int `json:"epoch"`
		}](m)
		if err != nil {
			return nil, err
		}
		return rank.Audit(ctx, p.Epoch)
	case "unusable":
		p, err := params[struct {
			Sample int    `json:"sample"`
			Reason string `json:"reason"`
		}](m)
		if err != nil {
			return nil, err
		}
		policy, err := rank.Unusable(p.Sample, p.Reason)
		return Decided{policy}, err
	}
	p, err := params[struct {
		Cluster bool `json:"cluster"`
	}](m)
	switch {
	case err != nil:
		return nil, err
	case p.Cluster:
		return rank.ClusterReport(ctx), nil
	}
	return rank.Report(), nil
}

// params decodes a call's parameters; a call may have none.
func params[T any](m protocol.CallMessage) (p T, err error) {
	if len(m.Params) > 0 && string(m.Params) != "null" {
		err = protocol.DecodeJSON(m.Params, &p)
	}
	return p, err
}

// datasetParams are the parameters of the dataset calls.
type datasetParams struct {
	protocol.DatasetMessage
	protocol.Settings
	From   int  `json:"from"`
	To     int  `json:"to"`
	Ranges bool `json:"ranges"` // of records: also where their fields are
	Sample int  `json:"sample"` // of the method read
	// Launch, if not nil, is the launch of several nodes in which the process is.
	Launch *protocol.LaunchMessage `json:"launch"`
}

// Decided is the policy that applies to samples that cannot be used.
type Decided struct {
	OnError string `json:"on_error"`
}

// check validates the configuration and the transforms of a job before it is opened.
func (x *conn) check(m protocol.CallMessage) (*Decided, error) {
	p, err := params[struct {
		protocol.Settings
		Transforms json.RawMessage `json:"transforms"`
	}](m)
	if err != nil {
		return nil, err
	}
	cfg, err := x.d.cfg.Node.Resolve(settings(p.Settings))
	if err != nil {
		return nil, err
	}
	if request.Describes(p.Transforms) {
		_, err = request.Compile(p.Transforms)
	}
	return &Decided{cfg.OnError}, err
}

// openDataset opens the dataset of a call. It stays open as long as the connection.
func (x *conn) openDataset(ctx context.Context, m protocol.CallMessage,
	with brought,
) (*catalog.Dataset, *datasetParams, error) {
	p, err := params[datasetParams](m)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := x.d.cfg.Node.Resolve(settings(p.Settings))
	if err != nil {
		return nil, nil, err
	}
	spec := datasetSpec(p.DatasetMessage)
	if with.manifest != nil {
		if spec.Manifest, err = request.ReadManifest(with.manifest, nil); err != nil {
			return nil, nil, err
		}
	}
	asked := fmt.Sprintf("%q", []any{p.DatasetMessage, cfg.IndexDir, spec.Manifest.Sum()})
	x.mu.Lock()
	ds := x.datasets[asked]
	x.mu.Unlock()
	if ds != nil { // all calls of a connection see the same version
		return ds, &p, nil
	}
	ds, err = x.d.cfg.Node.OpenDataset(ctx, spec, with.view, node.OpenOptions{
		Config: cfg, Launch: launchRequest(p.Launch), Progress: x.progress(),
	})
	if err != nil {
		return nil, nil, err
	}
	x.mu.Lock()
	if other := x.datasets[asked]; other != nil { // a concurrent call was faster
		x.mu.Unlock()
		ds.Close()
		return other, &p, nil
	}
	x.datasets[asked] = ds
	x.mu.Unlock()
	return ds, &p, nil
}

func (x *conn) describeDataset(ctx context.Context, m protocol.CallMessage,
	with brought,
) (any, error) {
	ds, _, err := x.openDataset(ctx, m, with)
	if err != nil {
		return nil, err
	}
	index := ds.Index()
	fingerprint := index.Fingerprint()
	facts := map[string]any{
		"samples": index.Len(), "classes": protocol.Names(index.Classes()), "bytes": index.Bytes(),
		"fingerprint": hex.EncodeToString(fingerprint[:]), "class_sizes": index.ClassSizes(),
	}
	if fields := index.Fields(); fields != nil {
		objects := make([]protocol.Name, index.Objects())
		for o := range objects {
			objects[o] = protocol.Name(index.Object(o).Name)
		}
		facts["fields"], facts["objects"] = protocol.Names(fields), objects
		facts["columns"] = protocol.Names(index.Columns())
		facts["lacking"] = protocol.Names(index.Lacking())
	}
	return facts, nil
}

// contents describes a sample that was read.
type contents struct {
	Lengths []int64 `json:"lengths"` // of its fields, each at a multiple of 64; -1: missing
}

// readSample reads a sample from the source, without a cache, and writes its packed fields to the
// memory that came with the call.
func (x *conn) readSample(ctx context.Context, m protocol.CallMessage, with brought) (any, error) {
	ds, p, err := x.openDataset(ctx, m, with)
	if err != nil {
		return nil, err
	}
	index := ds.Index()
	if p.Sample < 0 || p.Sample >= index.Len() {
		return nil, failure.Input("sample %d of %d", p.Sample, index.Len())
	}
	data, err := ds.Read(ctx, p.Sample)
	if err != nil {
		return nil, err
	}
	c := contents{}
	for _, r := range index.Ranges(nil, p.Sample) {
		c.Lengths = append(c.Lengths, r.Length)
	}
	info, err := with.into.Stat()
	if err == nil && !info.Mode().IsRegular() { // writing to something else might take forever
		err = errors.New("it is no file in memory")
	}
	if err == nil {
		_, err = with.into.WriteAt(data, 0)
	}
	if err != nil {
		return nil, failure.Input("the memory for a sample: %v", err)
	}
	return c, nil
}

// recordList describes records: what they are called, their values, and where they are.
type recordList struct {
	Keys    []protocol.Name   `json:"keys"`
	Objects []int             `json:"objects"` // of the first field that each has
	Values  [][]protocol.Name `json:"values"`  // by column
	Ranges  [][][3]int64      `json:"ranges"`  // object, offset and length; length -1: missing
}

func (x *conn) listRecords(ctx context.Context, m protocol.CallMessage,
	with brought,
) (any, error) {
	ds, p, err := x.openDataset(ctx, m, with)
	if err != nil {
		return nil, err
	}
	index := ds.Index()
	if err := p.check(index.Len()); err != nil {
		return nil, err
	}
	list := recordList{Values: make([][]protocol.Name, len(index.Columns()))}
	var ranges []source.Range
	for id := p.From; id < p.To; id++ {
		list.Keys = append(list.Keys, protocol.Name(index.Name(id)))
		for c := range list.Values {
			list.Values[c] = append(list.Values[c], protocol.Name(index.Value(c, id)))
		}
		ranges = index.Ranges(ranges[:0], id)
		first := slices.IndexFunc(ranges, func(r source.Range) bool {
			return r.Length != source.Missing
		})
		list.Objects = append(list.Objects, ranges[first].Object)
		if !p.Ranges {
			continue
		}
		of := make([][3]int64, len(ranges))
		for f, r := range ranges {
			of[f] = [3]int64{int64(r.Object), r.Offset, r.Length}
		}
		list.Ranges = append(list.Ranges, of)
	}
	return list, nil
}

// check checks the range of samples that a call lists.
func (p *datasetParams) check(samples int) error {
	if p.From >= 0 && p.To >= p.From && p.To <= samples && p.To-p.From <= maxSamples {
		return nil
	}
	return &protocol.ErrorMessage{
		Kind: protocol.KindConfig,
		Message: fmt.Sprintf("samples from %d to %d cannot be listed: the range must be "+
			"within 0 to %d, and one call lists at most %d samples", p.From, p.To, samples,
			maxSamples),
	}
}

func (x *conn) listSamples(ctx context.Context, m protocol.CallMessage,
	with brought,
) (any, error) {
	ds, p, err := x.openDataset(ctx, m, with)
	if err != nil {
		return nil, err
	}
	index := ds.Index()
	if err := p.check(index.Len()); err != nil {
		return nil, err
	}
	list := make([][2]any, 0, p.To-p.From)
	for id := p.From; id < p.To; id++ {
		list = append(list, [2]any{protocol.Name(index.Name(id)), index.Label(id)})
	}
	return list, nil
}

// Stats describes the daemon and its jobs, as `hdmlp stats` shows them.
type Stats struct {
	Version     string           `json:"version"`
	PID         int              `json:"pid"`
	Connections int              `json:"connections"` // without those that only query the status
	Jobs        []*report.Report `json:"jobs"`
}

// ClusterStats describes jobs over all their nodes, as `hdmlp stats --job` and `hdmlp top` show
// them.
type ClusterStats struct {
	Jobs []*report.ClusterReport `json:"jobs"`
}
