#!/bin/sh
# aiperf against Surgetank's OpenAI door, without any access to the internet.
#
#   sh examples/aiperf/profile.sh TOKENIZER_FOLDER [other options of aiperf]
#
# URL, MODEL, CONCURRENCY, REQUESTS, INPUT, OUTPUT, OUT: from the environment. AIPERF: the program.
set -eu
tokenizer=${1:?"usage: profile.sh TOKENIZER_FOLDER [options]; tokenizer_folder.py writes one"}
shift
exec "${AIPERF:-aiperf}" profile \
  -m "${MODEL:-default}" \
  --url "${URL:-http://127.0.0.1:8400}" \
  --endpoint-type chat --streaming \
  --tokenizer "$tokenizer" --use-server-token-count \
  --concurrency "${CONCURRENCY:-4}" \
  --request-count "${REQUESTS:-40}" \
  --synthetic-input-tokens-mean "${INPUT:-100}" \
  --output-tokens-mean "${OUTPUT:-20}" \
  --extra-inputs ignore_eos:true \
  --goodput "time_to_first_token:1000 inter_token_latency:100" \
  --output-artifact-dir "${OUT:-out/aiperf}" \
  --ui simple "$@"
