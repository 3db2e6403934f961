package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// result is one measurement, or the median of several.
type result struct {
	Peer   string        `json:"peer"`
	Path   string        `json:"path"`
	Size   int           `json:"size"`
	Rate   float64       `json:"bytes_per_second"`
	CPU    float64       `json:"cpu_seconds_per_gb"` // client and server
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
	// median over the rounds of exchange's rate divided by this one's
	Against float64 `json:"times_rate"`
}

// measure alternates between the peers, round by round, and returns medians.
func measure(ctx context.Context, o options) ([]result, error) {
	sizes, err := o.sizeList()
	if err != nil {
		return nil, err
	}
	p, err := newPath(o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var medians []result
	for _, size := range sizes {
		all := map[string][]result{}
		names := strings.Split(o.peers, ",")
		for range o.rounds {
			for _, name := range names {
				r, err := p.once(ctx, o, name, size)
				if err != nil {
					return nil, fmt.Errorf("%s, %d bytes, %s: %w", name, size, p.name, err)
				}
				all[name] = append(all[name], r)
			}
		}
		for _, name := range names {
			medians = append(medians, medianOf(all[name], all["exchange"]))
		}
	}
	return medians, nil
}

func medianOf(rounds, own []result) result {
	m := rounds[0]
	pick := func(of func(i int) float64) float64 {
		var v []float64
		for i := range rounds {
			v = append(v, of(i))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	m.Rate = pick(func(i int) float64 { return rounds[i].Rate })
	m.CPU = pick(func(i int) float64 { return rounds[i].CPU })
	m.Median = time.Duration(pick(func(i int) float64 { return float64(rounds[i].Median) }))
	m.P99 = time.Duration(pick(func(i int) float64 { return float64(rounds[i].P99) }))
	if len(own) == len(rounds) {
		m.Against = pick(func(i int) float64 { return own[i].Rate / rounds[i].Rate })
	}
	return m
}

func table(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "path\tbytes\tpeer\tMB/s\tsamples/s\tCPU s/GB\tp50\tp99\texchange is\t")
	for _, r := range results {
		samples := fmt.Sprintf("%.0f", r.Rate/float64(r.Size))
		p50 := fmt.Sprint(r.Median.Round(time.Microsecond))
		p99 := fmt.Sprint(r.P99.Round(time.Microsecond))
		if r.Peer == "iperf3" {
			samples = ""
			p50 = ""
			p99 = ""
		}
		against := ""
		if r.Peer != "exchange" && r.Against > 0 {
			against = fmt.Sprintf("%.2f times", r.Against)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.0f\t%s\t%.2f\t%s\t%s\t%s\t\n", r.Path, r.Size, r.Peer,
			r.Rate/1e6, samples, r.CPU, p50, p99, against)
	}
	t.Flush()
}

// path is the network path between client and server.
type path struct {
	name       string
	addr       string
	in, out    []string // prefix of the server's and of the client's command
	namespaces []string
}

func newPath(o options) (*path, error) {
	if !o.netns {
		return &path{name: "loopback", addr: "127.0.0.1"}, nil
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("--netns needs root")
	}
	a, b := fmt.Sprintf("exa%d", os.Getpid()), fmt.Sprintf("exb%d", os.Getpid())
	p := &path{
		name: "veth", addr: "10.74.61.1", namespaces: []string{a, b},
		in: []string{"ip", "netns", "exec", a}, out: []string{"ip", "netns", "exec", b},
	}
	steps := []string{
		"ip netns add " + a, "ip netns add " + b,
		"ip link add v0 netns " + a + " type veth peer name v0 netns " + b,
		"ip -n " + a + " addr add 10.74.61.1/30 dev v0",
		"ip -n " + b + " addr add 10.74.61.2/30 dev v0",
		"ip -n " + a + " link set v0 up", "ip -n " + b + " link set v0 up",
	}
	if o.rate != "" {
		p.name += " " + o.rate
		for _, ns := range p.namespaces {
			steps = append(steps, "ip netns exec "+ns+
				" tc qdisc add dev v0 root tbf burst 512kb latency 20ms rate "+o.rate)
		}
	}
	for _, step := range steps {
		words := strings.Fields(step)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			p.close()
			return nil, fmt.Errorf("%s: %w: %s", step, err, out)
		}
	}
	return p, nil
}

// close removes the namespaces, and the link with them.
func (p *path) close() {
	for _, ns := range p.namespaces {
		exec.Command("ip", "netns", "del", ns).Run()
	}
}

// command returns a command whose process ends when this one does.
func command(ctx context.Context, prefix []string, args ...string) *exec.Cmd {
	words := slices.Concat(prefix, args)
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stderr = os.Stderr
	return c
}

// once makes one measurement.
func (p *path) once(ctx context.Context, o options, name string, size int) (result, error) {
	r := result{Peer: name, Path: p.name, Size: size}
	switch name {
	case "iperf3":
		return r, p.iperf3(ctx, o, &r)
	case "exchange", "exchange-tls", "grpc", "grpc-raw":
	default:
		return r,
			fmt.Errorf("unknown peer %q; known are exchange, exchange-tls, grpc, grpc-raw, iperf3",
				name)
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	args := []string{
		self, "--listen", p.addr, "--sizes", strconv.Itoa(size), "--data",
		strconv.FormatInt(o.data, 10),
		"--seconds", fmt.Sprint(o.seconds), "--callers", strconv.Itoa(o.callers), "--conns",
		strconv.Itoa(o.conns), "--peers", name,
	}
	if name == "exchange" {
		args = append(args, "--profile", o.profile)
	}
	server := command(ctx, p.in, append(args, "--role", "server")...)
	stdin, err := server.StdinPipe()
	if err != nil {
		return r, err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := server.Start(); err != nil {
		return r, err
	}
	defer server.Wait()
	defer stdin.Close()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return r, fmt.Errorf("the server printed %q: %w", line, err)
	}
	before, err := processorTime(server.Process.Pid)
	if err != nil {
		return r, err
	}
	client := command(ctx, p.out, append(args, "--role", "client")...)
	said, err := client.Output()
	if err != nil {
		return r, err
	}
	after, err := processorTime(server.Process.Pid)
	if err != nil {
		return r, err
	}
	var got fetched
	if err := json.Unmarshal(said, &got); err != nil {
		return r, err
	}
	r.Rate = float64(got.Bytes) / got.Seconds
	r.CPU = ((after - before).Seconds() + got.CPU) / (float64(got.Bytes) / 1e9)
	r.Median, r.P99 = got.Median, got.P99
	return r, nil
}

// iperf3 measures plain TCP connections: it sends one block of memory over and over, in the
// direction of the samples, and does not look at the bytes.
func (p *path) iperf3(ctx context.Context, o options, r *result) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := command(ctx, p.in, "iperf3", "--server", "--one-off", "--bind", p.addr, "--port",
		"7463", "--forceflush")
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Wait()
	defer cancel()
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.Contains(line, "listening") {
			break
		}
	}
	seconds := strconv.Itoa(max(1, int(o.seconds)))
	said, err := command(ctx, p.out, "iperf3", "--client", p.addr, "--port", "7463", "--reverse",
		"--json", "--time", seconds,
		"--parallel", strconv.Itoa(o.conns)).Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	var report struct {
		End struct {
			Received struct {
				Bits    float64 `json:"bits_per_second"`
				Seconds float64 `json:"seconds"`
			} `json:"sum_received"`
			CPU struct {
				Host   float64 `json:"host_total"`
				Remote float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(said, &report); err != nil {
		return err
	}
	r.Rate = report.End.Received.Bits / 8
	r.CPU = (report.End.CPU.Host + report.End.CPU.Remote) / 100 / (r.Rate / 1e9)
	return nil
}
